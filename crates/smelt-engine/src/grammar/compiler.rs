//! Grammars over the tokens of a vocabulary.

use super::matcher::{Position, first_line};
use super::workers::Workers;
use super::{Grammar, GrammarError, Source};
use llguidance::api::{GrammarWithLexer, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use smelt_tokenizer::{TokenKind, Tokenizer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Grammars that are kept compiled.
const MOST_KEPT: usize = 8;

/// Bytes of stack for compiling a grammar: some tens of kilobytes for each of the deepest chain's rules in a build without
/// optimizations. Only what is used of it is taken.
const COMPILE_STACK: usize = if cfg!(target_pointer_width = "64") { 1 << 30 } else { 1 << 26 };

/// What llguidance's trie holds: bytes of a token, bytes of all.
const MOST_TOKEN_BYTES: usize = 1000;
const MOST_WORD_BYTES: usize = 1 << 22;

/// What a grammar may take: it comes from anyone. A unit of fuel is some tens of nanoseconds, a state of the lexer one or
/// two kilobytes.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 2000,
    initial_lexer_fuel: 1_000_000,
    step_lexer_fuel: 200_000,
    step_max_items: 50_000,
    max_lexer_states: 30_000,
    max_grammar_size: 200_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};

/// Compiles grammars for one vocabulary, and keeps the last few. Who asks for one that is being compiled waits for it, and
/// nobody else does.
#[derive(Default)]
pub(crate) struct Compiler {
    /// Made for the first grammar.
    ready: Mutex<Option<Arc<Ready>>>,
    /// The last used last.
    kept: Mutex<Vec<(Grammar, Arc<Slot>)>>,
}

/// A grammar's beginning, once it is compiled.
type Slot = Mutex<Option<Result<Position, GrammarError>>>;

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compiler")
    }
}

/// What the first grammar needs and the next ones share.
struct Ready {
    factory: ParserFactory,
    workers: Workers,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Compiler {
    /// The grammar's beginning, and the threads that compute where it leads.
    ///
    /// # Errors
    /// Why the grammar can't be enforced, or the vocabulary be constrained.
    pub(super) fn begin(
        &self,
        tokenizer: &Tokenizer,
        grammar: &Grammar,
    ) -> Result<(Position, Workers), GrammarError> {
        let ready = self.ready(tokenizer)?;
        let slot = self.slot(grammar);
        let position = {
            let mut compiled = lock(&slot);
            match compiled.get_or_insert_with(|| in_deep_stack(|| ready.compile(grammar)).flatten()) {
                Ok(position) => Ok(position.copy()),
                Err(error) => Err(error.clone()),
            }
        };
        if position.is_err() {
            // What is told needn't be kept, and may be otherwise next time, where there was no thread to be had.
            lock(&self.kept).retain(|(_, kept)| !Arc::ptr_eq(kept, &slot));
        }
        Ok((position?, ready.workers.clone()))
    }

    fn ready(&self, tokenizer: &Tokenizer) -> Result<Arc<Ready>, GrammarError> {
        let mut ready = lock(&self.ready);
        Ok(match &*ready {
            Some(ready) => ready.clone(),
            None => ready.insert(Arc::new(Ready::new(tokenizer)?)).clone(),
        })
    }

    /// The grammar's place among those that are kept.
    fn slot(&self, grammar: &Grammar) -> Arc<Slot> {
        let mut kept = lock(&self.kept);
        let entry = match kept.iter().position(|(known, _)| known == grammar) {
            Some(index) => kept.remove(index),
            None => (grammar.clone(), Arc::default()),
        };
        if kept.len() == MOST_KEPT {
            kept.remove(0);
        }
        let slot = entry.1.clone();
        kept.push(entry);
        slot
    }
}

impl Ready {
    fn new(tokenizer: &Tokenizer) -> Result<Self, GrammarError> {
        let failed = |error: &dyn std::fmt::Display| GrammarError::Vocabulary(first_line(error));
        let env = token_env(tokenizer)?;
        // Sets of tokens that strings of JSON often allow are computed once.
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| failed(&error))?;
        factory.quiet();
        *factory.limits_mut() = LIMITS;
        Ok(Self { factory, workers: Workers::start().map_err(|error| failed(&error))? })
    }

    fn compile(&self, Grammar(source): &Grammar) -> Result<Position, GrammarError> {
        let top = TopLevelGrammar::from_grammar(match source {
            Source::Schema(schema) => GrammarWithLexer::from_json_schema(schema.clone()),
            Source::Lark(text) => GrammarWithLexer::from_lark(text.clone()),
            Source::Regex(regex) => GrammarWithLexer::from_regex(regex),
        });
        let parser = self.factory.create_parser(top).map_err(|error| refusal(source, &first_line(&error)))?;
        let position = Position::new(Matcher::new(Ok(parser)));
        match position.mask() {
            Ok(mask) if !mask.is_zero() => Ok(position),
            Err(error) if *error != StopReason::NoExtensionBias.to_string() => Err(refusal(source, error)),
            _ => Err(GrammarError::Invalid("no text meets it".into())),
        }
    }
}

/// Does `work` on a thread with a deep stack: llguidance follows rules and references by recursion, and a chain of them may
/// be as long as a grammar is.
fn in_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, GrammarError> {
    let failed =
        |problem: &dyn std::fmt::Display| GrammarError::Invalid(format!("it can't be compiled: {problem}"));
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("smelt-compile".into()).stack_size(COMPILE_STACK);
        let handle = builder.spawn_scoped(scope, work).map_err(|error| failed(&error))?;
        handle.join().map_err(|_| failed(&"the compiler gave up"))
    })
}

/// Words of llguidance's errors, the keyword that they speak of, and what to say instead.
const BLAMED: &[(&str, &str, Option<&str>)] = &[
    (
        "oneOf",
        "oneOf",
        Some(
            "its options can't be told apart; give each a type of its own, or a `required` property with a `const` of its \
             own, or use `anyOf`",
        ),
    ),
    (
        "min/maxProperties",
        "minProperties",
        Some("it and `maxProperties` can only count beside `properties` that are all in `required`"),
    ),
    ("minProperties", "minProperties", None),
    ("maxProperties", "maxProperties", None),
    ("patternProperty", "patternProperties", None),
    ("minItems", "minItems", None),
    ("minLength", "minLength", None),
    ("multipleOf", "multipleOf", None),
    ("integer range", "minimum", None),
    ("float range", "minimum", None),
    ("circular references", "$ref", None),
    ("regex", "pattern", None),
    ("Regex", "pattern", None),
    ("required", "required", None),
    ("anyOf", "anyOf", None),
    ("schema is false", "false", Some("it allows no value")),
];

/// An error of llguidance, with the keyword if it speaks of one.
fn refusal(source: &Source, error: &str) -> GrammarError {
    let blamed = BLAMED.iter().find(|(words, ..)| error.contains(words));
    match (source, blamed) {
        (Source::Schema(_), Some((_, keyword, why))) => {
            let why = why.map_or_else(|| error.to_owned(), str::to_owned);
            GrammarError::Keyword { keyword: (*keyword).into(), at: None, why }
        }
        _ => GrammarError::Invalid(error.into()),
    }
}

/// The vocabulary as llguidance takes it.
///
/// # Errors
/// If no token ends an answer: then a complete one could not end.
fn token_env(tokenizer: &Tokenizer) -> Result<TokEnv, GrammarError> {
    let Some(&end) = tokenizer.eog_ids().first() else {
        return Err(GrammarError::Vocabulary("its vocabulary has no token that ends them".into()));
    };
    let size = tokenizer.vocab_size();
    let words: Vec<Vec<u8>> = (0..).take(size).map(|id| word(tokenizer, id)).collect();
    let too_large = || GrammarError::Vocabulary("its vocabulary is too large".into());
    if words.iter().map(Vec::len).sum::<usize>() >= MOST_WORD_BYTES {
        return Err(too_large());
    }
    let count = u32::try_from(size).map_err(|_| too_large())?;
    let trie = TokTrie::from(&TokRxInfo::new(count, end), &words).with_eos_tokens(tokenizer.eog_ids());
    Ok(Arc::new(ApproximateTokEnv::new(trie)))
}

/// What a token writes. A control token writes nothing: it stands behind a byte that no text has, so that only a grammar
/// that names it allows it. Tokens that can't be part of a text are never allowed.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id, true).unwrap_or_default();
    match tokenizer.kind(id) {
        Some(TokenKind::Control) if bytes.len() < MOST_TOKEN_BYTES => {
            [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
        }
        Some(TokenKind::Control | TokenKind::Unknown | TokenKind::Unused) | None => Vec::new(),
        Some(_) if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) || bytes.len() > MOST_TOKEN_BYTES => {
            Vec::new()
        }
        Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte) => bytes.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Settings};

    #[test]
    fn a_grammar_that_is_being_compiled_holds_up_no_other() {
        let file = smelt_testdata::data("tiny/llama3/llama3-f16.gguf");
        let model = Model::open(&file, &Settings::default()).unwrap();
        let (compiler, tokenizer) = (Compiler::default(), model.tokenizer());
        let [slow, other] = ["a+", "b+"].map(|regex| Grammar::regex(regex).unwrap());
        let slot = compiler.slot(&slow);
        let compiling = lock(&slot);
        thread::scope(|threads| {
            // Whoever wants the same grammar gets it when it is there.
            let same = [(); 3].map(|()| threads.spawn(|| compiler.begin(tokenizer, &slow).map(drop)));
            assert!(compiler.begin(tokenizer, &other).is_ok());
            drop(compiling);
            same.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_ok()));
        });
        assert!(lock(&slot).is_some() && lock(&compiler.kept).len() == 2);
        // What can't be compiled is told, and not kept.
        let bad = Grammar::lark("start: nowhere").unwrap();
        assert!(compiler.begin(tokenizer, &bad).is_err());
        assert_eq!(lock(&compiler.kept).len(), 2);
    }
}
