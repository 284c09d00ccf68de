//! What the server and an engine's process say to each other: one JSON document per line.
//!
//! ```text
//! server                          process
//! load ─────────────────────────>           once, first
//!      <───────────────────────── loaded | not_loaded
//! generate(attempt, request) ───>
//!      <───────────────────────── accepted | refused
//!      <───────────────────────── started, progress*, prompt_logprobs*, delta*, finished per answer
//!                                            or, of pool(attempt, request): started, pooled per text
//!      <───────────────────────── commit_ready | failed
//! commit(attempt) ──────────────>           the answer counts from here on
//!      <───────────────────────── done
//! cancel(attempt) ──────────────>           nothing comes of it any more
//! ping ─────────────────────────>
//!      <───────────────────────── pong(numbers)
//! shutdown(drain) ──────────────>           the process ends when all is answered, or the time has come
//! ```
//!
//! An attempt's number is never used twice, so that what comes late of one that is over is of no harm. Both ends are one
//! program: `load` names the version, and another one refuses. So documents are the engine's own types, and an unknown one
//! is an error. Tokens travel as ids, since both ends have the vocabulary, and probabilities as the bits of their numbers.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smelt_engine::scheduler::{PoolRequest, SchedulerSettings, Stats, Usage};
use smelt_engine::tokenizer::Tokenizer;
use smelt_engine::tokenizer::answer::ThinkTags;
use smelt_engine::{
    BackendChoice, Calls, Constraint, Finish, Grammar, GrammarError, Isa, IsaChoice, KvFormat, KvFormats,
    Model, Numa, Repack, Settings, ThinkingBudget, TokenInfo, TopToken,
};

use crate::models::{OpenModel, Stamp};

/// Bytes that a line may have: those of a prompt as long as the longest context are some hundred million.
pub(super) const MOST_LINE: u64 = 1 << 28;
/// Tokens of a prompt that one document tells of.
pub(super) const TOLD_AT_ONCE: usize = 1024;

/// From the server to the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    Load(Box<Load>),
    Generate { attempt: u64, request: Box<Request> },
    Pool { attempt: u64, request: Box<PoolRequest> },
    Cancel { attempt: u64 },
    Commit { attempt: u64 },
    Ping,
    Shutdown { drain: Duration },
}

/// From the process to the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Report {
    Loaded {
        /// The backend, its instruction set, its threads and why so many.
        device: String,
    },
    NotLoaded {
        why: String,
    },
    Answer {
        attempt: u64,
        event: Event,
    },
    Pong {
        stats: Box<Stats>,
    },
}

/// What happens to an attempt: [`smelt_engine::scheduler::Event`], and the handshake around it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Event {
    Accepted,
    Refused(Refusal),
    Started {
        cached_tokens: usize,
        prompt_tokens: usize,
    },
    /// More of the prompt is computed.
    Progress {
        computed_tokens: usize,
    },
    /// Some more of the prompt's tokens.
    PromptLogprobs(Vec<Token>),
    Delta {
        index: usize,
        text: String,
        tokens: Vec<Token>,
    },
    Finished {
        index: usize,
        finish: Finish,
        usage: Usage,
    },
    /// What was asked of a text, as the bits of numbers.
    Pooled {
        index: usize,
        values: Vec<u32>,
    },
    /// All answers are complete.
    CommitReady,
    Done,
    Failed(Failure),
}

/// Why a request was not accepted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Refusal {
    QueueFull {
        message: String,
        /// Seconds.
        retry_after: u64,
    },
    TooLong {
        prompt_tokens: usize,
        context: usize,
    },
    /// What the answer must look like can't be enforced.
    Constraint {
        param: String,
        message: String,
        /// Whether that is so for any grammar.
        unsupported: bool,
    },
    Invalid(String),
    Stopping(String),
    Broken(String),
}

/// Why an answer is not complete.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) message: String,
}

/// Who is to blame for a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// The request: what it asked for leaves no token to choose, or grew too complex.
    Request,
    /// The machine: it has no memory for the keys and values.
    Memory,
    /// The model's file, or Smelt.
    Internal,
    /// Nobody: the process was told to end.
    Stopped,
}

/// A token, and ln p as bits: its own, and those of the likeliest ones in its place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Token(u32, Option<u32>, Vec<(u32, u32)>);

impl Token {
    pub(super) fn new(info: &TokenInfo) -> Self {
        let top = info.top.iter().map(|token| (token.id, token.logprob.to_bits()));
        Self(info.id, info.logprob.map(f32::to_bits), top.collect())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0
    }

    /// What the engine told.
    pub(crate) fn info(self, tokenizer: &Tokenizer) -> TokenInfo {
        let bytes = |id| tokenizer.token_bytes(id, true).unwrap_or_default().to_vec();
        let top = |(id, bits)| TopToken { id, bytes: bytes(id), logprob: f32::from_bits(bits) };
        TokenInfo {
            id: self.0,
            bytes: bytes(self.0),
            logprob: self.1.map(f32::from_bits),
            top: self.2.into_iter().map(top).collect(),
        }
    }
}

/// A prompt, and how to answer it, with what the answer must look like as data.
pub(crate) type Request = smelt_engine::scheduler::Request<Requirement>;

/// What an answer must look like. It is compiled where the engine is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    /// The parameter that asks for it.
    pub(crate) param: String,
    pub(crate) grammar: Option<Grammar>,
    /// Calls that may stand in it, or instead of what `grammar` says.
    pub(crate) calls: Option<Calls>,
    pub(crate) thoughts: Option<Thoughts>,
}

/// What a model that thinks may do before it answers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Thoughts {
    #[serde(with = "tags")]
    pub(crate) tags: &'static ThinkTags,
    /// The prompt has opened the block.
    pub(crate) is_open: bool,
    /// The grammar holds behind the block only.
    pub(crate) are_free: bool,
    /// The block is closed by force after so many tokens.
    pub(crate) budget: Option<usize>,
}

/// Marks of thought, by the opening one.
mod tags {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use smelt_engine::tokenizer::answer::{THINKING, ThinkTags};

    pub(super) fn serialize<S: Serializer>(tags: &&'static ThinkTags, to: S) -> Result<S::Ok, S::Error> {
        tags.open.serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<&'static ThinkTags, D::Error> {
        let open = String::deserialize(from)?;
        let tags = THINKING.iter().find(|tags| tags.open == open);
        tags.ok_or_else(|| D::Error::custom(format!("there are no marks of thought {open:?}")))
    }
}

impl Requirement {
    /// The constraint on an answer of this model. It compiles the grammar, which may take seconds.
    ///
    /// # Errors
    /// Why it can't be enforced.
    pub(super) fn compile(&self, model: &Model) -> Result<Option<Box<dyn Constraint>>, GrammarError> {
        let mut answer = self.grammar.as_ref().map(|grammar| model.constrain(grammar)).transpose()?;
        if let Some(calls) = &self.calls {
            answer = Some(model.constrain_calls(calls, answer)?);
        }
        let Some(Thoughts { tags, is_open, are_free, budget }) = self.thoughts else { return Ok(answer) };
        if are_free {
            answer = answer.map(|answer| model.behind_thoughts(answer, tags, is_open));
        }
        Ok(match budget {
            Some(tokens) => Some(Box::new(ThinkingBudget::new(model, tags, is_open, tokens, answer))),
            None => answer,
        })
    }
}

/// A model, and how it is run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    /// Of Smelt.
    pub(super) version: String,
    pub(super) file: OsString,
    /// The file that prompts are made for.
    pub(super) stamp: Stamp,
    pub(super) engine: EngineSettings,
    pub(super) scheduler: SchedulerSettings,
}

/// [`Settings`], with names for formats and instruction sets.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineSettings {
    is_reference: bool,
    context: Option<usize>,
    batch: usize,
    logit_rows: usize,
    keys: String,
    values: String,
    threads: Option<usize>,
    isa: Option<String>,
    numa: String,
    repack: String,
    force: bool,
}

impl Load {
    pub(super) fn new(model: &OpenModel, scheduler: SchedulerSettings) -> Self {
        let version = crate::info::VERSION.to_owned();
        let (file, engine) = (model.source.file.clone().into(), EngineSettings::new(&model.source.engine));
        Self { version, file, stamp: model.stamp.clone(), engine, scheduler }
    }
}

/// Instruction sets that settings may name.
const ISAS: [Isa; 3] = [Isa::Scalar, Isa::Avx2, Isa::Avx512Vnni];

impl EngineSettings {
    fn new(settings: &Settings) -> Self {
        let Settings { backend, context, batch, logit_rows, kv_formats, threads, isa, force, numa, repack } =
            *settings;
        Self {
            is_reference: backend == BackendChoice::Reference,
            context,
            batch,
            logit_rows,
            keys: kv_formats.k.name().to_owned(),
            values: kv_formats.v.name().to_owned(),
            threads,
            isa: match isa {
                IsaChoice::Auto => None,
                IsaChoice::Only(isa) => Some(isa.name().to_owned()),
            },
            numa: numa.name().to_owned(),
            repack: repack.name().to_owned(),
            force,
        }
    }

    /// The settings; `None` if a name is unknown.
    pub(super) fn settings(&self) -> Option<Settings> {
        let format = |name: &str| KvFormat::ALL.into_iter().find(|format| format.name() == name);
        let isa = |name: &String| ISAS.into_iter().find(|isa| isa.name() == name);
        Some(Settings {
            backend: if self.is_reference { BackendChoice::Reference } else { BackendChoice::Cpu },
            context: self.context,
            batch: self.batch,
            logit_rows: self.logit_rows,
            kv_formats: KvFormats { k: format(&self.keys)?, v: format(&self.values)? },
            threads: self.threads,
            isa: match &self.isa {
                None => IsaChoice::Auto,
                Some(name) => IsaChoice::Only(isa(name)?),
            },
            numa: Numa::ALL.into_iter().find(|numa| numa.name() == self.numa)?,
            repack: Repack::ALL.into_iter().find(|repack| repack.name() == self.repack)?,
            force: self.force,
        })
    }
}

/// A document's line.
pub(super) fn to_line(document: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(document)?;
    line.push(b'\n');
    Ok(line)
}

/// The document of a line. Schemas may be deeper than what `serde_json` takes from strangers; they were checked when they
/// came from one.
///
/// # Errors
/// If it is none, or has more than one.
pub(super) fn from_line<'a, T: Deserialize<'a>>(line: &'a [u8]) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(line);
    reader.disable_recursion_limit();
    let document = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use smelt_engine::Pooling;
    use smelt_engine::sampler::SamplerSettings;
    use smelt_engine::scheduler::{Task, Text};

    fn again<T: Serialize + for<'a> Deserialize<'a>>(document: &T) -> T {
        from_line(&to_line(document).unwrap()).unwrap()
    }

    #[test]
    fn tokens_and_texts_survive_bit_by_bit() {
        let file = smelt_testdata::data("tiny/llama3/llama3-f16.gguf");
        let model = Model::open(&file, &Settings::default()).unwrap();
        let tokenizer = model.tokenizer();
        let bytes = |id| tokenizer.token_bytes(id, true).unwrap_or_default().to_vec();
        // Bytes of tokens are no text as often as not, and probabilities may be zero.
        for id in 0..tokenizer.vocab_size() as u32 {
            let logprobs = [-0.0, -0.1, f32::NEG_INFINITY, -f32::MIN_POSITIVE, -1e30];
            let top = logprobs.map(|logprob| TopToken { id, bytes: bytes(id), logprob });
            for logprob in [None, Some(-1.0 / 3.0), Some(f32::NEG_INFINITY)] {
                let info = TokenInfo { id, bytes: bytes(id), logprob, top: top.to_vec() };
                assert_eq!(again(&Token::new(&info)).info(tokenizer), info);
            }
        }
        let text: String =
            (0..0x300).filter_map(char::from_u32).chain("\u{2028}🦙\u{fffd}".chars()).collect();
        let event = Event::Delta { index: 1, text: text.clone(), tokens: Vec::new() };
        assert!(matches!(again(&event), Event::Delta { index: 1, text: same, .. } if same == text));
        let line = to_line(&event).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
    }

    #[test]
    fn requests_survive() {
        // As deep as a client's schema may be.
        let deep =
            (0..90).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        for schema in [deep, json!({"type": "object", "properties": {"b": {}, "a": {"const": 1e300}}})] {
            let grammar = Grammar::from_json_schema(&schema);
            let thoughts = smelt_engine::tokenizer::answer::THINKING.iter().map(|tags| Thoughts {
                tags,
                is_open: true,
                are_free: false,
                budget: Some(3),
            });
            for thoughts in thoughts.map(Some).chain([None]) {
                let requirement = Requirement {
                    param: "x".into(),
                    grammar: grammar.as_ref().ok().cloned(),
                    calls: None,
                    thoughts,
                };
                let sampler = SamplerSettings::default();
                let request =
                    Request { constraint: Some(requirement), ..Request::new(vec![1, u32::MAX], sampler) };
                let order = Order::Generate { attempt: u64::MAX, request: Box::new(request.clone()) };
                let Order::Generate { attempt, request: same } = again(&order) else { panic!() };
                let value = |request: &Request| serde_json::to_value(request).unwrap();
                assert_eq!((attempt, value(&same)), (u64::MAX, value(&request)));
            }
        }
    }

    #[test]
    fn texts_to_pool_and_their_numbers_survive() {
        let tasks = [Task::Labels, Task::Logits(vec![0, u32::MAX].into())];
        for task in Pooling::ALL.map(Task::Embedding).into_iter().chain(tasks) {
            let texts = vec![vec![1, 2].into(), Text { tokens: vec![3], segments: vec![1] }];
            let request = PoolRequest { texts: texts.clone(), task: task.clone(), priority: -1 };
            let order = Order::Pool { attempt: 1, request: request.into() };
            let Order::Pool { request, .. } = again(&order) else { panic!() };
            assert_eq!((request.texts, request.task, request.priority), (texts, task, -1));
        }
        let values: Vec<u32> = [-0.0, f32::NEG_INFINITY, f32::MIN_POSITIVE, 0.1].map(f32::to_bits).into();
        let event = Event::Pooled { index: 3, values: values.clone() };
        assert!(matches!(again(&event), Event::Pooled { index: 3, values: same } if same == values));
    }

    #[test]
    fn settings_survive() {
        for format in KvFormat::ALL {
            for isa in ISAS.map(IsaChoice::Only).into_iter().chain([IsaChoice::Auto]) {
                for backend in [BackendChoice::Cpu, BackendChoice::Reference] {
                    let settings =
                        Settings { kv_formats: format.into(), isa, backend, ..Settings::default() };
                    assert_eq!(again(&EngineSettings::new(&settings)).settings(), Some(settings));
                }
            }
        }
        for (numa, repack) in Numa::ALL.into_iter().flat_map(|numa| Repack::ALL.map(|repack| (numa, repack)))
        {
            let settings = Settings { numa, repack, ..Settings::default() };
            assert_eq!(again(&EngineSettings::new(&settings)).settings(), Some(settings));
        }
    }

    #[test]
    fn what_is_unknown_is_an_error() {
        let fine = |line: &str| from_line::<Order>(line.as_bytes()).is_ok();
        assert!(fine("\"ping\"") && fine(r#"{"cancel": {"attempt": 1}}"#));
        for line in
            ["", "ping", "\"dance\"", "\"ping\" \"ping\"", r#"{"cancel": {"attempt": 1, "now": true}}"#, "{"]
        {
            assert!(!fine(line), "{line}");
        }
        assert!(from_line::<Value>(&[0xff]).is_err());
    }
}
