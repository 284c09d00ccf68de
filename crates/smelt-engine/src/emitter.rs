//! The one emitter: logits in, tokens and text out.
//!
//! Whoever runs steps, one sequence at a time or many at once, gives each sequence's logits to its [`Emitter`]. Choosing,
//! end tokens, stop strings, limits, log-probabilities and the cutting of text into whole characters are here and nowhere
//! else.

use crate::constraint::{self, Constraint};
use crate::lines::{LineLimits, Lines};
use crate::sampler::{LogProbs, SampleError, Sampler, SamplerSettings};
use crate::stop::StopMatcher;
use crate::{Error, Finish, Model};
use smelt_tokenizer::{Detokenizer, Tokenizer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A token of an answer or of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenInfo {
    /// Its id.
    pub id: u32,
    /// What it stands for. The bytes of one token need not be whole characters.
    pub bytes: Vec<u8>,
    /// ln p in the model's own distribution, before anything that sampling does, or in the one that it was drawn from; `None`
    /// where it wasn't asked for, and for the first token of a prompt.
    pub logprob: Option<f32>,
    /// The likeliest tokens in its place, likeliest first, as many as were asked for.
    pub top: Vec<TopToken>,
}

/// One of the likeliest tokens in some place.
#[derive(Debug, Clone, PartialEq)]
pub struct TopToken {
    /// Its id.
    pub id: u32,
    /// What it stands for.
    pub bytes: Vec<u8>,
    /// ln p in the same distribution.
    pub logprob: f32,
}

/// How one answer is to be emitted.
pub(crate) struct Emission {
    pub(crate) sampler: SamplerSettings,
    pub(crate) stop: Vec<String>,
    pub(crate) lines: LineLimits,
    pub(crate) max_tokens: Option<usize>,
    /// Tokens that the sequence may have.
    pub(crate) context: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) show_special: bool,
    /// Control tokens whose texts are emitted all the same.
    pub(crate) shown: Arc<[u32]>,
    /// Log-probabilities, and of how many of the likeliest tokens.
    pub(crate) logprobs: Option<usize>,
    /// They are of the distribution that tokens are drawn from.
    pub(crate) post_sampling: bool,
    pub(crate) constraint: Option<Box<dyn Constraint>>,
}

/// What came of one step.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Emitted {
    /// The token that was chosen; `None` if the answer ended without it.
    pub(crate) token: Option<u32>,
    /// Text that may be shown.
    pub(crate) text: String,
    /// The tokens whose text is out with this.
    pub(crate) tokens: Vec<TokenInfo>,
    /// Why the answer ended.
    pub(crate) finish: Option<Finish>,
}

/// Turns the logits of one sequence to text that may be shown: whole characters, nothing of a stop string.
pub(crate) struct Emitter {
    model: Arc<Model>,
    sampler: Sampler,
    text: Detokenizer,
    stop: StopMatcher,
    lines: Lines,
    /// When the first token was chosen.
    first: Option<Instant>,
    constraint: Option<Box<dyn Constraint>>,
    ignore_eos: bool,
    logprobs: Option<usize>,
    /// What the last token was drawn from, (token, p) likeliest first, if that is what is told.
    drawn_from: Option<Vec<(u32, f32)>>,
    max_tokens: usize,
    context: usize,
    prompt_tokens: usize,
    /// Tokens chosen, the ending one not counted.
    count: usize,
    /// Tokens whose text is held back.
    held: VecDeque<Held>,
    /// Bytes of text that tokens were turned to, and how many of them are out.
    written: usize,
    released: usize,
    /// Logits without what the constraint bans.
    masked: Vec<f32>,
}

struct Held {
    info: TokenInfo,
    /// The bytes of text before it, and up to its end.
    start: usize,
    end: usize,
}

impl Emitter {
    /// An emitter for an answer to `prompt`.
    ///
    /// # Errors
    /// If a setting is out of range or a stop string empty.
    pub(crate) fn new(model: &Arc<Model>, emission: Emission, prompt: &[u32]) -> Result<Self, Error> {
        let Emission { sampler, stop, lines, max_tokens, context, .. } = emission;
        Ok(Self {
            sampler: Sampler::new(sampler, model.facts.vocab_size, prompt)?.knowing(model.tokenizer.clone()),
            text: model
                .tokenizer
                .stream_after(prompt.last().copied(), emission.show_special)
                .showing(emission.shown),
            stop: StopMatcher::new(&stop)?,
            lines: Lines::new(lines),
            first: None,
            constraint: emission.constraint,
            ignore_eos: emission.ignore_eos,
            logprobs: emission.logprobs,
            drawn_from: (emission.post_sampling && emission.logprobs.is_some()).then(Vec::new),
            max_tokens: max_tokens.unwrap_or(usize::MAX),
            context,
            prompt_tokens: prompt.len(),
            count: 0,
            held: VecDeque::new(),
            written: 0,
            released: 0,
            masked: Vec::new(),
            model: model.clone(),
        })
    }

    /// The seed in use.
    pub(crate) fn seed(&self) -> u64 {
        self.sampler.seed()
    }

    /// Tokens chosen, the ending one not counted.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Chooses the token behind all so far from its logits (`[vocab_size]`, left as they are), and emits what it
    /// completes. After a finish it isn't called again.
    ///
    /// # Errors
    /// If the model computes nonsense, or the constraint or the bias leaves no token.
    pub(crate) fn next(&mut self, logits: &mut [f32]) -> Result<Emitted, Error> {
        if self.count >= self.max_tokens {
            return Ok(self.end(Finish::MaxTokens, Emitted::default()));
        }
        let token = self.choose(logits)?;
        self.first.get_or_insert_with(Instant::now);
        if self.model.tokenizer.is_eog(token) && !self.ignore_eos {
            return Ok(self.end(Finish::EndOfGeneration(token), Emitted::default()));
        }
        let tokenizer = &self.model.tokenizer;
        let info = match &self.drawn_from {
            None => token_info(tokenizer, logits, token, self.logprobs)?,
            Some(distribution) => drawn_info(tokenizer, distribution, token, self.logprobs.unwrap_or(0)),
        };
        self.count += 1;
        let mut emitted = Emitted { token: Some(token), ..Emitted::default() };
        let text = self.text.push(token);
        let start = self.written;
        self.written += text.len();
        // A character that a later token completes is one more byte at least.
        let end = self.written + usize::from(self.text.is_pending());
        self.held.push_back(Held { info, start, end });
        self.emit(&text, &mut emitted);
        if emitted.finish.is_some() {
            return Ok(emitted);
        }
        if self.count >= self.max_tokens {
            return Ok(self.end(Finish::MaxTokens, emitted));
        }
        // The chosen token has no place of its own yet.
        if self.prompt_tokens + self.count > self.context {
            return Ok(self.end(Finish::ContextFull, emitted));
        }
        Ok(emitted)
    }

    fn choose(&mut self, logits: &mut [f32]) -> Result<u32, Error> {
        let step = self.count;
        let wrap = |source: SampleError| match source {
            SampleError::NotFinite { .. } => {
                Error::Logits { model: self.model.facts.name.clone(), step, source }
            }
            other => Error::Sampler(other),
        };
        let Self { sampler, drawn_from, .. } = self;
        let mut draw = |row: &mut [f32]| {
            if let Some(distribution) = drawn_from {
                *distribution = sampler.distribution(row)?;
            }
            sampler.sample(row)
        };
        let token = match &mut self.constraint {
            None => draw(logits).map_err(wrap)?,
            Some(constraint) => {
                let row = match constraint.mask().map_err(Error::Constraint)? {
                    None => logits,
                    Some(mask) => {
                        self.masked.clear();
                        self.masked.extend_from_slice(logits);
                        constraint::apply(mask, &mut self.masked);
                        &mut self.masked
                    }
                };
                let token = draw(row).map_err(wrap)?;
                constraint.accept(token).map_err(Error::Constraint)?;
                token
            }
        };
        self.sampler.accept(token);
        Ok(token)
    }

    /// Lets out of `text` what can't belong to a stop string, nor to a line that the answer ends in front of.
    fn emit(&mut self, text: &str, emitted: &mut Emitted) {
        let before = emitted.text.len();
        let elapsed = self.first.map(|first| first.elapsed()).unwrap_or_default();
        let out = self.stop.push(text);
        let ends = self.lines.push(out.text, elapsed, &mut emitted.text);
        emitted.finish = match out.stopped {
            _ if ends => Some(Finish::Line),
            None => None,
            Some(stop) => {
                emitted.text.push_str(self.lines.held());
                Some(Finish::StopString(stop))
            }
        };
        self.released += emitted.text.len() - before;
        let released = self.released;
        // What the end cut through has text that is out.
        let cut = emitted.finish.is_some();
        while let Some(held) = self.held.pop_front_if(|h| h.end <= released || (cut && h.start < released)) {
            emitted.tokens.push(held.info);
        }
        if cut {
            self.held.clear();
        }
    }

    /// Emits what was held back, in which a stop string may be completed still.
    fn end(&mut self, finish: Finish, mut emitted: Emitted) -> Emitted {
        let text = self.text.finish();
        self.emit(&text, &mut emitted);
        if emitted.finish.is_none() {
            let elapsed = self.first.map(|first| first.elapsed()).unwrap_or_default();
            let ends = self.lines.push(self.stop.held(), elapsed, &mut emitted.text);
            emitted.finish = Some(if ends { Finish::Line } else { finish });
            if !ends {
                emitted.text.push_str(self.lines.held());
            }
            emitted.tokens.extend(self.held.drain(..).map(|held| held.info));
        }
        emitted
    }
}

/// What is to be told about `token`, chosen by these logits.
///
/// # Errors
/// If log-probabilities are wanted and the logits are no numbers.
pub(crate) fn token_info(
    tokenizer: &Tokenizer,
    logits: &[f32],
    token: u32,
    logprobs: Option<usize>,
) -> Result<TokenInfo, Error> {
    let bytes = |id| tokenizer.token_bytes(id, true).unwrap_or_default().to_vec();
    let mut info = TokenInfo { id: token, bytes: bytes(token), logprob: None, top: Vec::new() };
    if let Some(n) = logprobs {
        let distribution = LogProbs::new(logits)?;
        let top = distribution.top(n).into_iter();
        info.logprob = distribution.of(token);
        info.top = top.map(|(id, logprob)| TopToken { id, bytes: bytes(id), logprob }).collect();
    }
    Ok(info)
}

/// The same of a token that was drawn from a distribution.
fn drawn_info(tokenizer: &Tokenizer, distribution: &[(u32, f32)], token: u32, top: usize) -> TokenInfo {
    let bytes = |id| tokenizer.token_bytes(id, true).unwrap_or_default().to_vec();
    let can_be_drawn = distribution.iter().filter(|(_, p)| *p > 0.0);
    let of = |&(id, p): &(u32, f32)| TopToken { id, bytes: bytes(id), logprob: p.ln() };
    TokenInfo {
        id: token,
        bytes: bytes(token),
        logprob: can_be_drawn.clone().find(|(id, _)| *id == token).map(|(_, p)| p.ln()),
        top: can_be_drawn.take(top).map(of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Settings};
    use smelt_tokenizer::Special;

    /// What comes of a text, token by token, with what it was in all.
    fn emit(text: &str, stop: &[&str], max_tokens: Option<usize>) -> (Vec<Emitted>, String, Vec<u32>) {
        let file = smelt_testdata::data("tiny/llama/llama-f16.gguf");
        let engine = Engine::load(&file, &Settings::default()).unwrap();
        let model = engine.model();
        let emission = Emission {
            sampler: SamplerSettings::greedy(),
            stop: stop.iter().map(|s| (*s).to_owned()).collect(),
            lines: LineLimits::default(),
            max_tokens,
            context: 512,
            ignore_eos: false,
            show_special: false,
            shown: Arc::default(),
            logprobs: None,
            post_sampling: false,
            constraint: None,
        };
        let mut emitter = Emitter::new(model, emission, &[5]).unwrap();
        let ids = model.tokenizer.encode(text, Special::Text, false);
        let mut all = Vec::new();
        for id in ids.iter().copied().chain(model.tokenizer.eos()) {
            let mut logits = vec![0.0; model.facts.vocab_size];
            logits[id as usize] = 1.0;
            all.push(emitter.next(&mut logits).unwrap());
            if all.last().unwrap().finish.is_some() {
                break;
            }
        }
        let told = all.iter().flat_map(|e| &e.tokens).map(|t| t.id).collect();
        let text = all.iter().map(|e| e.text.as_str()).collect();
        assert!(all.last().unwrap().finish.is_some(), "{all:?}");
        (all, text, told)
    }

    #[test]
    fn tokens_are_told_with_the_last_byte_of_their_text() {
        for text in ["Hello, world", "naïve €5 🦙🦙", "a<|x"] {
            let (all, out, told) = emit(text, &["<|xyz|>"], None);
            assert_eq!(out.trim_start(), text);
            let chosen: Vec<u32> = all.iter().filter_map(|e| e.token).collect();
            assert_eq!(told, chosen);
            let mut bytes = Vec::new();
            let mut shown = String::new();
            for emitted in &all {
                shown.push_str(&emitted.text);
                emitted.tokens.iter().for_each(|token| bytes.extend_from_slice(&token.bytes));
                assert!(shown.as_bytes().starts_with(&bytes), "{shown:?}: {bytes:?}");
            }
            assert!(matches!(all.last().unwrap().finish, Some(Finish::EndOfGeneration(_))));
        }
    }

    #[test]
    fn nothing_behind_a_stop_string_is_told() {
        let (all, out, told) = emit("one STOP two", &["STOP"], None);
        assert_eq!((out.trim_start(), all.last().unwrap().finish), ("one ", Some(Finish::StopString(0))));
        assert!(told.len() < all.len(), "{all:?}");
        let (all, out, told) = emit("one STO", &["STOP"], Some(0));
        assert_eq!((out.as_str(), told.len(), all[0].finish), ("", 0, Some(Finish::MaxTokens)));
        let (all, out, told) = emit("one two three", &[], Some(2));
        assert_eq!((all.len(), told.len(), all[1].finish), (2, 2, Some(Finish::MaxTokens)));
        assert!(!out.is_empty());
    }
}
