//! The tokenizer of one vocabulary.

use crate::bpe::Bpe;
use crate::chat::Rendered;
use crate::detok::Detokenizer;
use crate::error::Error;
use crate::merge::Merger;
use crate::partition::{Fragment, Partition};
use crate::pre::{self, Pre};
use crate::source::{Special, SpecialIds, Strictness, VocabSource};
use crate::spm::{SPACE, Spm};
use crate::unigram::Unigram;
use crate::vocab::{Spelling, TokenKind, Vocab};
use crate::wordpiece::WordPiece;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Offsets inside of one piece of text are 32 bits wide; longer texts are cut.
const MAX_PIECE: usize = 1 << 30;

/// Text to ids and back, for one vocabulary. Clones share everything.
#[derive(Clone, Debug)]
pub struct Tokenizer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    vocab: Vocab,
    partition: Partition,
    algorithm: Algorithm,
    add_bos: bool,
    add_eos: bool,
    add_sep: bool,
    add_space_prefix: bool,
}

#[derive(Debug)]
enum Algorithm {
    Spm(Spm),
    Bpe(Box<Bpe>),
    Unigram(Box<Unigram>),
    WordPiece(WordPiece),
}

/// A `tokenizer.ggml.model`, and what it implies when the metadata doesn't say.
struct Kind {
    model: &'static str,
    bos: Option<u32>,
    eos: Option<u32>,
    unk: Option<u32>,
    sep: Option<u32>,
    pad: Option<u32>,
    mask: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    add_sep: bool,
    add_space_prefix: bool,
}

const KIND: Kind = Kind {
    model: "",
    bos: None,
    eos: None,
    unk: None,
    sep: None,
    pad: None,
    mask: None,
    add_bos: false,
    add_eos: false,
    add_sep: false,
    add_space_prefix: false,
};

const KINDS: &[Kind] = &[
    Kind {
        model: "llama",
        bos: Some(1),
        eos: Some(2),
        unk: Some(0),
        add_bos: true,
        add_space_prefix: true,
        ..KIND
    },
    Kind { model: "gpt2", ..KIND },
    Kind { model: "gemma4", ..KIND },
    Kind { model: "t5", eos: Some(1), unk: Some(2), pad: Some(0), add_eos: true, ..KIND },
    Kind {
        model: "bert",
        bos: Some(101),
        unk: Some(100),
        sep: Some(102),
        pad: Some(0),
        mask: Some(103),
        add_bos: true,
        add_sep: true,
        ..KIND
    },
];

impl Kind {
    /// Fills in the roles that the metadata leaves open, where the vocabulary is large enough to hold them.
    fn fill(&self, special: &mut SpecialIds, count: usize) {
        let fill = |slot: &mut Option<u32>, default: Option<u32>| {
            *slot = slot.or(default.filter(|&id| (id as usize) < count));
        };
        fill(&mut special.bos, self.bos);
        fill(&mut special.eos, self.eos);
        fill(&mut special.unk, self.unk);
        fill(&mut special.sep, self.sep);
        fill(&mut special.pad, self.pad);
        fill(&mut special.mask, self.mask);
    }
}

fn find_pre(source: &VocabSource, strict: Strictness) -> Result<&'static Pre, Error> {
    let named = if source.model == pre::GEMMA4 { Some(pre::GEMMA4) } else { source.pre.as_deref() };
    let found = named.filter(|name| !name.is_empty()).map(|name| (name, pre::find(name)));
    match (found, strict) {
        (Some((_, Some(pre))), _) => Ok(pre),
        (_, Strictness::Force) => pre::find(pre::DEFAULT).ok_or(Error::MissingPre),
        (Some((name, None)), _) => {
            Err(Error::UnknownPre { pre: name.into(), known: pre::known_pre_names().join(", ") })
        }
        (None, _) => Err(Error::MissingPre),
    }
}

impl Tokenizer {
    /// Builds a tokenizer.
    ///
    /// # Errors
    /// If the vocabulary is damaged, of a kind that is not supported, or (unless forced) of an unknown `pre`.
    pub fn new(mut source: VocabSource, strict: Strictness) -> Result<Self, Error> {
        let Some(kind) = KINDS.iter().find(|k| k.model == source.model) else {
            let known: Vec<_> = KINDS.iter().map(|k| k.model).collect();
            return Err(Error::UnknownModel { model: source.model, known: known.join(", ") });
        };
        kind.fill(&mut source.special, source.tokens.len());
        let is_bpe = matches!(kind.model, "gpt2" | "gemma4");
        let pre = if is_bpe { Some(find_pre(&source, strict)?) } else { None };
        let spelling = match pre {
            Some(pre) if pre.byte_level => Spelling::ByteLevel,
            _ => Spelling::Escaped,
        };
        let vocab = Vocab::new(&mut source, spelling, strict)?;
        let add_space_prefix = source.add_space_prefix.unwrap_or(kind.add_space_prefix);
        let algorithm = match (pre, kind.model) {
            (Some(pre), _) => {
                Algorithm::Bpe(Box::new(Bpe::new(&vocab, pre, &source.merges, kind.model, strict)?))
            }
            (None, "t5") => Algorithm::Unigram(Box::new(Unigram::new(&vocab, &source, add_space_prefix)?)),
            (None, "bert") => Algorithm::WordPiece(WordPiece::new(&vocab, &source)?),
            (None, _) => Algorithm::Spm(Spm::new(&vocab, &source.scores)),
        };
        let special = *vocab.special();
        // What is only a default gives way to a vocabulary without such a token; what the metadata asks for does not.
        let resolve = |said: Option<bool>, default: bool, id: Option<u32>, key: &'static str| match said {
            Some(true) if id.is_none() => Err(Error::MissingSpecial { key, model: source.model.clone() }),
            Some(said) => Ok(said),
            None => Ok(default && id.is_some()),
        };
        let default_bos = kind.add_bos || pre.is_some_and(|p| p.add_bos);
        let default_sep = kind.add_sep || pre.is_some_and(|p| p.add_sep);
        let said_bos = source.add_bos.filter(|&said| said || !pre.is_some_and(|p| p.force_bos));
        let inner = Inner {
            partition: Partition::new(&vocab)?,
            add_bos: resolve(said_bos, default_bos, special.bos, "tokenizer.ggml.bos_token_id")?,
            add_eos: resolve(source.add_eos, kind.add_eos, special.eos, "tokenizer.ggml.eos_token_id")?,
            add_sep: resolve(source.add_sep, default_sep, special.sep, "tokenizer.ggml.seperator_token_id")?,
            add_space_prefix,
            vocab,
            algorithm,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The ids of `text`. With `add_bos_eos`, BOS and EOS (or SEP) are added if the vocabulary asks for them.
    pub fn encode(&self, text: &str, special: Special, add_bos_eos: bool) -> Vec<u32> {
        match special {
            Special::Parse => self.encode_ranges(text, &[], add_bos_eos),
            Special::Text => self.encode_ranges(text, std::slice::from_ref(&(0..text.len())), add_bos_eos),
        }
    }

    /// The ids of a rendered conversation: control tokens are found only in what the template wrote, and BOS is added
    /// only if the template did not write it.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Vec<u32> {
        let bos = self.bos().and_then(|id| self.piece(id)).unwrap_or_default();
        self.encode_ranges(&rendered.text, &rendered.user, !rendered.begins_with(bos))
    }

    fn encode_ranges(&self, text: &str, user: &[Range<usize>], add_bos_eos: bool) -> Vec<u32> {
        let Inner { vocab, partition, algorithm, .. } = &*self.0;
        let ids = vocab.special();
        // SentencePiece reads U+2581 as a space everywhere; it matters where runs of spaces are user-defined tokens.
        let (text, user) = match algorithm {
            Algorithm::Spm(spm) if spm.has_space_runs() && text.contains(SPACE) => {
                let moved = |at: usize| at - 2 * text[..at].matches(SPACE).count();
                let user = user.iter().map(|r| moved(r.start)..moved(r.end)).collect();
                (Cow::Owned(text.replace(SPACE, " ")), Cow::Owned(user))
            }
            _ => (Cow::Borrowed(text), Cow::Borrowed(user)),
        };
        let mut out = Vec::with_capacity(text.len() / 4 + 2);
        if add_bos_eos && self.0.add_bos {
            out.extend(ids.bos);
        }
        let mut merger = Merger::default();
        let mut after_special = true;
        partition.split(vocab, &text, &user, |fragment| match fragment {
            Fragment::Token(id) => {
                out.push(id);
                after_special = true;
            }
            Fragment::Text(text) => {
                for piece in pieces(text) {
                    match algorithm {
                        Algorithm::Spm(spm) => {
                            let prefix = if self.0.add_space_prefix && after_special { SPACE } else { "" };
                            let escaped = [prefix, &piece.replace(' ', SPACE)].concat();
                            spm.encode(vocab, &escaped, &mut merger, &mut out);
                        }
                        Algorithm::Bpe(bpe) => bpe.encode(vocab, piece, &mut merger, &mut out),
                        Algorithm::Unigram(unigram) => unigram.encode(piece, &mut out),
                        Algorithm::WordPiece(wordpiece) => wordpiece.encode(vocab, piece, &mut out),
                    }
                    after_special = false;
                }
            }
        });
        if add_bos_eos && self.0.add_sep && matches!(algorithm, Algorithm::WordPiece(_)) {
            out.extend(ids.sep);
        }
        if add_bos_eos && self.0.add_eos {
            out.extend(ids.eos);
        }
        out
    }

    /// The first control token that stands in a text, and where it does; of several that begin there the longest.
    pub fn find_control(&self, text: &str) -> Option<(u32, Range<usize>)> {
        self.0.partition.find_control(&self.0.vocab, text)
    }

    /// The bytes that `id` decodes to; none of a control or unknown token unless `show_special`. `None` outside of the
    /// vocabulary.
    pub fn token_bytes(&self, id: u32, show_special: bool) -> Option<&[u8]> {
        let bytes = self.0.vocab.bytes(id)?;
        let hidden = !show_special && self.0.vocab.is_hidden(id);
        Some(if hidden { &[] } else { bytes })
    }

    /// The text of whole `ids`. Bytes that are no UTF-8 become U+FFFD; the space that encoding put in front goes.
    pub fn decode(&self, ids: &[u32], show_special: bool) -> String {
        let mut stream = Detokenizer::new(self.clone(), show_special).strip_space(self.strips_space());
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A decoder for a text that begins with the first id it is given.
    pub fn stream(&self) -> Detokenizer {
        Detokenizer::new(self.clone(), false).strip_space(self.strips_space())
    }

    /// A decoder for ids that follow `last`: a space in front is the model's own after text, but was put there by the
    /// rule of the vocabulary after a special token. `None` is as [`Self::stream`].
    pub fn stream_after(&self, last: Option<u32>, show_special: bool) -> Detokenizer {
        let strip = self.strips_space() && last.is_none_or(|id| self.is_special(id));
        Detokenizer::new(self.clone(), show_special).strip_space(strip)
    }

    /// Whether decoding drops a leading space, as encoding adds one.
    fn strips_space(&self) -> bool {
        self.0.add_space_prefix || matches!(self.0.algorithm, Algorithm::WordPiece(_))
    }

    /// Whether `id` is a control or unknown token.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(TokenKind::Control | TokenKind::Unknown))
    }

    /// What `id` is.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.0.vocab.kind(id)
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.special_ids().bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.special_ids().eos
    }

    /// All tokens with a role.
    pub fn special_ids(&self) -> &SpecialIds {
        self.0.vocab.special()
    }

    /// The tokens that end a generation, ascending.
    pub fn eog_ids(&self) -> &[u32] {
        self.0.vocab.eog()
    }

    /// Whether `id` ends a generation.
    pub fn is_eog(&self, id: u32) -> bool {
        self.eog_ids().binary_search(&id).is_ok()
    }

    /// Whether [`Self::encode`] puts BOS in front when asked to add such tokens.
    pub fn adds_bos(&self) -> bool {
        self.0.add_bos
    }

    /// Whether [`Self::encode`] puts EOS behind when asked to add such tokens.
    pub fn adds_eos(&self) -> bool {
        self.0.add_eos
    }

    /// How many ids there are.
    pub fn vocab_size(&self) -> usize {
        self.0.vocab.len()
    }

    /// How the vocabulary spells `id`.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.0.vocab.text(id)
    }

    /// The id that the vocabulary spells as `piece`.
    pub fn id_of(&self, piece: &str) -> Option<u32> {
        self.0.vocab.id_of(piece)
    }
}

/// `text` in pieces of at most [`MAX_PIECE`] bytes.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(MAX_PIECE));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
