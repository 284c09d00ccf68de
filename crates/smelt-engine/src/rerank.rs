//! How relevant documents are to a query, by a model that was made to tell.
//!
//! There are two kinds. A cross-encoder reads query and document as a pair and scores a label. A writer is asked, in
//! words, whether the document answers the query, and the logits of "yes" and "no" behind the question tell
//! (Qwen3-Reranker, arXiv 2506.05176). Both give a number from 0 to 1.

use crate::scheduler::{Task, Text};
use crate::{Error, Head, Model};
use smelt_checkpoint::{Checkpoint, Error as CheckpointError};
use smelt_tokenizer::chat::Rendered;
use smelt_tokenizer::{Special, Tokenizer};

/// Qwen3-Reranker's question, in ChatML.
const QUESTION: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the \
                        Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n\
                        <|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n\
                        <|im_start|>assistant\n<think>\n\n</think>\n\n";
/// What counts as relevant, unless the request says.
const INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";

/// How a model tells what is relevant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reranker {
    /// The score of its only label.
    Score,
    /// The share of a label.
    Label(usize),
    /// The logits of two answers to a question.
    Answer { question: String, yes: u32, no: u32 },
}

impl Reranker {
    /// What the file says of it; `None` if the model was made for something else.
    ///
    /// # Errors
    /// If a key has another type than it should.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        tokenizer: &Tokenizer,
        (architecture, head, generates): (&str, Head, bool),
    ) -> Result<Option<Self>, CheckpointError> {
        let metadata = checkpoint.metadata();
        if let Head::Labels(n) = head {
            let key = format!("{architecture}.classifier.output_labels");
            let labels = metadata.str_array(&key)?.unwrap_or_default();
            let yes = labels.iter().position(|label| label.eq_ignore_ascii_case("yes")).filter(|i| *i < n);
            return Ok(match (yes, n) {
                (Some(yes), _) if n > 1 => Some(Self::Label(yes)),
                (_, 1) => Some(Self::Score),
                _ => None,
            });
        }
        let own = metadata.str("tokenizer.chat_template.rerank")?;
        let says_so = metadata.str("general.name")?.is_some_and(|n| n.to_lowercase().contains("rerank"));
        let is_chatml = says_so && tokenizer.id_of("<|im_start|>").is_some();
        let question = own.or(is_chatml.then_some(QUESTION)).filter(|_| generates);
        let answers = tokenizer.id_of("yes").zip(tokenizer.id_of("no"));
        Ok(question.zip(answers).map(|(question, (yes, no))| Self::Answer {
            question: question.into(),
            yes,
            no,
        }))
    }
}

/// Documents to be scored.
#[derive(Debug, Clone)]
pub struct Reranking {
    /// A text per document.
    pub texts: Vec<Text>,
    /// What is wanted of each.
    pub task: Task,
    /// The label that counts, where there are several.
    label: Option<usize>,
}

impl Reranking {
    /// How relevant a document is, from 0 to 1, by what its text gave.
    #[must_use]
    pub fn relevance(&self, values: &[f32]) -> f32 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match (self.label, values) {
            // Of all labels' softmax, this one's part.
            (Some(label), values) => {
                let score = f64::from(values[label]);
                (1.0 / values.iter().map(|other| (f64::from(*other) - score).exp()).sum::<f64>()) as f32
            }
            (None, [yes, no]) => sigmoid(f64::from(*yes) - f64::from(*no)) as f32,
            (None, values) => sigmoid(f64::from(values[0])) as f32,
        }
    }
}

impl Model {
    /// What is to be computed to tell how relevant `documents` are to `query`; `instruction` says what counts as relevant
    /// to a model that is asked in words. What they say never becomes a control token.
    ///
    /// # Errors
    /// If the model was not made for it, or takes no instruction.
    pub fn rerank(
        &self,
        query: &str,
        documents: &[String],
        instruction: Option<&str>,
    ) -> Result<Reranking, Error> {
        let unable = |what, why| Err(Error::Unable { model: self.facts.name.clone(), what, why });
        let Some(reranker) = &self.reranker else {
            return unable("rerank", "it has no label that says so and is no reranker by its file's word");
        };
        if instruction.is_some() && !matches!(reranker, Reranker::Answer { .. }) {
            return unable("follow an instruction", "it scores query and document as they are");
        }
        let text = |document: &String| match reranker {
            Reranker::Score | Reranker::Label(_) => self.pair(query, document),
            Reranker::Answer { question, .. } => {
                let parts = [instruction.unwrap_or(INSTRUCTION), query, document];
                self.tokenizer.encode_rendered(&filled(question, parts)).into()
            }
        };
        let (task, label) = match reranker {
            Reranker::Score => (Task::Labels, None),
            Reranker::Label(label) => (Task::Labels, Some(*label)),
            Reranker::Answer { yes, no, .. } => (Task::Logits([*yes, *no].into()), None),
        };
        Ok(Reranking { texts: documents.iter().map(text).collect(), task, label })
    }

    /// Two texts as a cross-encoder was trained to see them: BERT's `[CLS] a [SEP] b [SEP]` with its segments, or
    /// RoBERTa's `<s> a </s></s> b </s>`.
    fn pair(&self, first: &str, second: &str) -> Text {
        let encode = |text| self.tokenizer.encode(text, Special::Text, true);
        let (mut tokens, second) = (encode(first), encode(second));
        if self.tokenizer.adds_eos() {
            tokens.extend(self.tokenizer.eos());
        }
        let parted = tokens.len();
        let bos = usize::from(self.tokenizer.adds_bos() && second.first().copied() == self.tokenizer.bos());
        tokens.extend_from_slice(&second[bos..]);
        let segment = |at| u32::from(at >= parted);
        let segments =
            if self.facts.segments > 1 { (0..tokens.len()).map(segment).collect() } else { Vec::new() };
        Text { tokens, segments }
    }
}

/// A question with what it is about in its places, and where that stands.
fn filled(question: &str, [instruction, query, document]: [&str; 3]) -> Rendered {
    let mut rendered = Rendered::default();
    let mut rest = question;
    let places = [("{instruction}", instruction), ("{query}", query), ("{document}", document)];
    while let Some((at, place, text)) = places
        .iter()
        .filter_map(|(place, text)| Some((rest.find(place)?, place, text)))
        .min_by_key(|(at, ..)| *at)
    {
        rendered.text.push_str(&rest[..at]);
        let start = rendered.text.len();
        rendered.text.push_str(text);
        let end = rendered.text.len();
        match rendered.user.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ if end > start => rendered.user.push(start..end),
            _ => {}
        }
        rest = &rest[at + place.len()..];
    }
    rendered.text.push_str(rest);
    rendered
}
