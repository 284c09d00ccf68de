//! `/completion` and `/infill`.

use std::sync::Arc;

use axum::response::Response;
use serde_json::Value;
use smelt_api::llamacpp::{
    Completion, CompletionPiece, CompletionRequest, GenerationSettings, InfillRequest, StopType,
    TokenProbability, Wishes, choose_fields,
};
use smelt_api::openai::{LEAST_LOGPROB, Piece};
use smelt_api::{ApiError, Timings};
use smelt_engine::tokenizer::Special;
use smelt_engine::tokenizer::answer::ReaderOptions;
use smelt_engine::{Finish, Infill, TokenInfo, TopToken};

use super::generation_settings;
use crate::app::{Call, json};
use crate::daemon::Request;
use crate::generation::{Answer, Generation, News, text};
use crate::models::OpenModel;
use crate::openai::{request, silence};
use crate::prompt::{self, beside};
use crate::stream::{Framing, Gone, Pieces, respond, to_json};
use crate::structure;

pub(crate) async fn completion(call: Call) -> Result<Response, ApiError> {
    let CompletionRequest { prompts, wishes } = CompletionRequest::read(&call.body)?;
    let model = find(&call, &wishes).await?;
    let encoding = model.clone();
    let encoded = beside(move || {
        let encode = |text| prompt::encode(encoding.model(), text, (Special::Parse, true), "prompt");
        prompts.into_iter().map(encode).collect::<Result<Vec<_>, _>>()
    });
    answer(call, model, encoded.await?, wishes).await
}

pub(crate) async fn infill(call: Call) -> Result<Response, ApiError> {
    let InfillRequest { prefix, suffix, prompt, extra, wishes } = InfillRequest::read(&call.body)?;
    let model = find(&call, &wishes).await?;
    let encoding = model.clone();
    let encoded = beside(move || {
        let around = Infill { prefix: &prefix, suffix: &suffix, begun: &prompt, files: &extra };
        encoding.model().infill(around).map_err(|error| ApiError::unsupported("input_suffix", error))
    });
    answer(call, model, vec![encoded.await?], wishes).await
}

async fn find(call: &Call, wishes: &Wishes) -> Result<Arc<OpenModel>, ApiError> {
    call.tolerate(&wishes.common.unknown);
    call.app.models.find(wishes.common.model.as_deref()).await
}

async fn answer(
    call: Call,
    model: Arc<OpenModel>,
    prompts: Vec<Vec<u32>>,
    mut wishes: Wishes,
) -> Result<Response, ApiError> {
    settle_biases(&model, &mut wishes)?;
    let constraint = wishes.common.structure.take().map(structure::requirement).transpose()?;
    let requests = prompts.into_iter().map(|tokens| {
        let (logprobs, post_sampling) = (wishes.n_probs, wishes.post_sampling_probs);
        let constraint = constraint.clone();
        Ok(Request { logprobs, post_sampling, constraint, ..request(&model, tokens, &wishes.common)? })
    });
    let requests = requests.collect::<Result<Vec<_>, ApiError>>()?;
    let form = Form {
        settings: requests.iter().map(|r| generation_settings(r, wishes.common.stream.is_some())).collect(),
        prompts: requests.iter().map(|r| model.model().tokenizer().decode(&r.prompt, true)).collect(),
        lengths: requests.iter().map(|r| r.prompt.len()).collect(),
        model,
        wishes,
    };
    let generation = Generation::submit(&call, &form.model, requests, &ReaderOptions::default()).await?;
    if form.wishes.common.stream.is_some() {
        let answers = form.prompts.len() * form.wishes.common.n;
        return Ok(respond(Framing::Events, |pieces| {
            Writer { pieces, call, form, told: vec![Told::default(); answers] }.write(generation)
        }));
    }
    let n = form.wishes.common.n;
    let mut all = Vec::new();
    for (p, prompt) in generation.collect(n).await?.into_iter().enumerate() {
        for (i, answer) in prompt.answers.into_iter().enumerate() {
            all.push(form.whole((p, i), answer, prompt.cached_tokens, prompt.timings));
        }
    }
    // As llama.cpp does: a list of one is that one.
    Ok(match all.as_slice() {
        [one] => json(one),
        all => json(&all),
    })
}

/// Turns biases of texts to those of their tokens, and bans the tokens that end an answer if these are to be ignored.
fn settle_biases(model: &OpenModel, wishes: &mut Wishes) -> Result<(), ApiError> {
    let tokenizer = model.model().tokenizer();
    let Wishes { biases, common, .. } = wishes;
    for (piece, bias) in biases {
        let tokens = match piece {
            Piece::Token(id) => vec![*id],
            Piece::Text(text) => tokenizer.encode(text, Special::Parse, false),
        };
        prompt::check_ids(model.model(), &tokens, "logit_bias")?;
        common.sampling.logit_bias.extend(tokens.into_iter().map(|token| (token, *bias)));
    }
    if common.limits.ignore_eos {
        let ends = tokenizer.eog_ids().iter().map(|token| (*token, f32::NEG_INFINITY));
        common.sampling.logit_bias.extend(ends);
    }
    Ok(())
}

/// What is told of a request's answers.
struct Form {
    model: Arc<OpenModel>,
    wishes: Wishes,
    /// Of each prompt: how it is answered, its text, its tokens.
    settings: Vec<GenerationSettings>,
    prompts: Vec<String>,
    lengths: Vec<usize>,
}

impl Form {
    /// An answer as a document, of which prompt and which of its answers.
    fn whole(&self, at: (usize, usize), answer: Answer, cached: usize, timings: Timings) -> Value {
        let Answer { content, tokens, finish, count, seed, .. } = answer;
        let has_new_line = content.contains('\n');
        let told = Told { predicted: count.all, cached, has_new_line };
        let ids = if self.wishes.return_tokens { ids(&tokens) } else { Vec::new() };
        let probabilities = self.probabilities(&tokens);
        let last = Completion { content, tokens: ids, ..self.last(at, &told, (finish, seed), timings) };
        self.choose(&Completion { completion_probabilities: probabilities, ..last })
    }

    /// The last piece of an answer, which has nothing new of it.
    fn last(
        &self,
        (prompt, index): (usize, usize),
        told: &Told,
        (finish, seed): (Finish, Option<u64>),
        timings: Timings,
    ) -> Completion {
        let mut settings = self.settings[prompt].clone();
        if let Some(seed) = seed {
            settings.seed = seed.into();
        }
        settings.timings_per_token = self.wishes.common.timings_per_token;
        let (stop_type, stopping_word) = match finish {
            Finish::EndOfGeneration(_) => (StopType::Eos, None),
            Finish::StopString(i) => (StopType::Word, settings.stop.get(i).cloned()),
            Finish::MaxTokens | Finish::Line | Finish::ContextFull | Finish::Cancelled => {
                (StopType::Limit, None)
            }
        };
        Completion {
            index: prompt * self.wishes.common.n + index,
            content: String::new(),
            tokens: Vec::new(),
            stop: true,
            model: self.model.name().to_owned(),
            tokens_predicted: told.predicted,
            tokens_evaluated: self.lengths[prompt],
            generation_settings: settings,
            prompt: self.prompts[prompt].clone(),
            has_new_line: told.has_new_line,
            truncated: finish == Finish::ContextFull,
            stop_type,
            stopping_word: stopping_word.unwrap_or_default(),
            tokens_cached: told.cached,
            timings,
            completion_probabilities: None,
        }
    }

    fn choose(&self, completion: &Completion) -> Value {
        // By its text, in which numbers have as many digits as they need.
        let document = serde_json::from_str(&to_json(completion)).unwrap_or_default();
        choose_fields(document, &self.wishes.response_fields)
    }

    fn probabilities(&self, tokens: &[TokenInfo]) -> Option<Vec<TokenProbability>> {
        let drawn = self.wishes.post_sampling_probs;
        self.wishes.n_probs.map(|_| tokens.iter().map(|token| probability(token, drawn)).collect())
    }
}

fn ids(tokens: &[TokenInfo]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

fn probability(token: &TokenInfo, drawn: bool) -> TokenProbability {
    let of = |top: &TopToken| TokenProbability::new((top.id, &top.bytes), top.logprob, drawn, None);
    let top = token.top.iter().map(of).collect();
    TokenProbability::new((token.id, &token.bytes), token.logprob.unwrap_or(LEAST_LOGPROB), drawn, Some(top))
}

/// What was told of an answer.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    predicted: usize,
    /// Tokens of its prompt that were in the cache.
    cached: usize,
    has_new_line: bool,
}

/// Writes answers piece by piece.
struct Writer {
    pieces: Pieces,
    call: Call,
    form: Form,
    told: Vec<Told>,
}

impl Writer {
    async fn write(mut self, mut generation: Generation) -> Result<(), Gone> {
        let every = silence(&self.call, &self.form.wishes.common);
        loop {
            match self.pieces.alive(every, ": waiting\n\n", generation.next()).await? {
                Ok(Some((prompt, news))) => self.tell(&generation, prompt, news).await?,
                Ok(None) => return Ok(()),
                Err(error) => return self.pieces.json(&self.call.error_body(&error)).await,
            }
        }
    }

    async fn tell_progress(&self, generation: &Generation, prompt: usize) -> Result<(), Gone> {
        let common = &self.form.wishes.common;
        if !common.return_progress {
            return Ok(());
        }
        self.pieces
            .json(&CompletionPiece {
                index: prompt * common.n,
                content: String::new(),
                tokens: Vec::new(),
                stop: false,
                tokens_predicted: 0,
                tokens_evaluated: self.form.lengths[prompt],
                timings: common.timings_per_token.then(|| generation.timings(prompt)),
                prompt_progress: Some(generation.progress(prompt)),
                completion_probabilities: None,
            })
            .await
    }

    async fn tell(&mut self, generation: &Generation, prompt: usize, news: News) -> Result<(), Gone> {
        let n = self.form.wishes.common.n;
        match news {
            News::Started { cached_tokens, .. } => {
                self.told[prompt * n..][..n].iter_mut().for_each(|told| told.cached = cached_tokens);
                self.tell_progress(generation, prompt).await
            }
            News::Progress => self.tell_progress(generation, prompt).await,
            News::PromptLogprobs(_) => Ok(()),
            News::Delta { index, parts, tokens } => {
                let content = text(parts);
                let told = &mut self.told[prompt * n + index];
                told.predicted += tokens.len();
                told.has_new_line |= content.contains('\n');
                if content.is_empty() && tokens.is_empty() {
                    return Ok(());
                }
                let piece = CompletionPiece {
                    index: prompt * n + index,
                    content,
                    tokens: ids(&tokens),
                    stop: false,
                    tokens_predicted: told.predicted,
                    tokens_evaluated: self.form.lengths[prompt],
                    timings: self.form.wishes.common.timings_per_token.then(|| generation.timings(prompt)),
                    prompt_progress: None,
                    completion_probabilities: self.form.probabilities(&tokens),
                };
                self.pieces.json(&piece).await
            }
            News::Finished { index, finish, count, seed, .. } => {
                let told = Told { predicted: count.all, ..self.told[prompt * n + index] };
                let last = self.form.last((prompt, index), &told, (finish, seed), generation.timings(prompt));
                self.pieces.json(&self.form.choose(&last)).await
            }
        }
    }
}
