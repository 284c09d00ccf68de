//! The table of routes.

use std::pin::Pin;

use axum::http::Method;
use axum::response::Response;
use smelt_api::params::Params;
use smelt_api::{
    ApiError, Dialect, anthropic as claude, embeddings as vectors, llamacpp as cpp, ollama as llama,
    openai as gpt, rerank as ranks, responses as answers, tokens as ids,
};

use crate::app::Call;
use crate::{
    anthropic, embeddings, info, llamacpp, metrics, ollama, openai, openapi, page, pull, rerank, tokens,
};

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anybody: probes have no keys.
    Open,
    /// Whoever has a key, if the server has keys.
    Keyed,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response, ApiError>> + Send>>;

/// A route.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// A `{name}` in it stands for a piece of a path, a `{*name}` at its end for the rest of one.
    pub(crate) path: &'static str,
    /// Other paths that lead to it, of the same form.
    pub(crate) aliases: &'static [&'static str],
    /// In whose shape errors are.
    pub(crate) dialect: Dialect,
    pub(crate) access: Access,
    /// What it does.
    pub(crate) about: &'static str,
    /// The parameters of its body; without a body, of its query.
    pub(crate) params: Option<&'static [Params]>,
    pub(crate) handler: fn(Call) -> Answer,
}

impl Route {
    /// The same route, which other paths lead to as well.
    const fn also(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// All paths that lead to it.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &'static str> + Clone {
        std::iter::once(self.path).chain(self.aliases.iter().copied())
    }
}

use Access::{Keyed, Open};
use Dialect::{Anthropic, Ollama, OpenAi};

const fn get(
    path: &'static str,
    dialect: Dialect,
    access: Access,
    about: &'static str,
    handler: fn(Call) -> Answer,
) -> Route {
    Route { method: Method::GET, path, aliases: &[], dialect, access, about, params: None, handler }
}

/// A route that tells something of what its query names.
const fn query(
    path: &'static str,
    params: &'static [Params],
    about: &'static str,
    handler: fn(Call) -> Answer,
) -> Route {
    Route {
        method: Method::GET,
        path,
        aliases: &[],
        dialect: OpenAi,
        access: Keyed,
        about,
        params: Some(params),
        handler,
    }
}

/// A route of a response that is kept.
const fn kept(
    method: Method,
    path: &'static str,
    params: Option<&'static [Params]>,
    about: &'static str,
    handler: fn(Call) -> Answer,
) -> Route {
    Route { method, path, aliases: &[], dialect: OpenAi, access: Keyed, about, params, handler }
}

const fn post(
    path: &'static str,
    dialect: Dialect,
    params: &'static [Params],
    about: &'static str,
    handler: fn(Call) -> Answer,
) -> Route {
    Route {
        method: Method::POST,
        path,
        aliases: &[],
        dialect,
        access: Keyed,
        about,
        params: Some(params),
        handler,
    }
}

const RESPONSE: &str = "/v1/responses/{response}";

/// Every route.
pub(crate) static ROUTES: &[Route] = &[
    get("/", OpenAi, Open, "a page to chat with the models", |c| Box::pin(page::show(c))),
    get("/page/{*file}", OpenAi, Open, "what the page is made of", |c| Box::pin(page::show(c))),
    get("/health", OpenAi, Open, "200 when requests can be answered, else 503", |c| {
        Box::pin(info::health(c))
    })
    .also(&["/v1/health"]),
    get("/version", OpenAi, Keyed, "the server's version", |c| Box::pin(info::version(c))),
    get("/metrics", OpenAi, Keyed, "numbers for Prometheus", |c| Box::pin(metrics::show(c))),
    get("/openapi.json", OpenAi, Keyed, "this list, as OpenAPI", |c| Box::pin(openapi::show(c))),
    get("/v1/models", OpenAi, Keyed, "the models", |c| Box::pin(info::models(c))).also(&["/models"]),
    get("/v1/models/{*model}", OpenAi, Keyed, "one of them", |c| Box::pin(info::model(c))),
    post("/v1/chat/completions", OpenAi, gpt::CHAT_PARAMS, "answer a conversation", |c| {
        Box::pin(openai::chat::create(c))
    })
    .also(&["/chat/completions"]),
    post(
        "/v1/chat/completions/input_tokens",
        OpenAi,
        gpt::CHAT_PARAMS,
        "count a conversation's tokens",
        |c| Box::pin(openai::chat::count(c)),
    )
    .also(&["/chat/completions/input_tokens"]),
    post("/apply-template", OpenAi, gpt::CHAT_PARAMS, "the prompt of a conversation", |c| {
        Box::pin(openai::chat::apply_template(c))
    }),
    post("/v1/completions", OpenAi, gpt::COMPLETION_PARAMS, "continue a text", |c| {
        Box::pin(openai::completions::create(c))
    }),
    post("/v1/responses", OpenAi, answers::RESPONSES_PARAMS, "answer a conversation", |c| {
        Box::pin(openai::responses::create(c))
    })
    .also(&["/responses"]),
    post(
        "/v1/responses/input_tokens",
        OpenAi,
        answers::INPUT_TOKENS_PARAMS,
        "count a conversation's tokens",
        |c| Box::pin(openai::responses::count(c)),
    )
    .also(&["/responses/input_tokens"]),
    kept(Method::GET, RESPONSE, Some(answers::RETRIEVE_PARAMS), "a response that is kept", |c| {
        Box::pin(openai::responses::retrieve(c))
    }),
    kept(Method::DELETE, RESPONSE, None, "forget a response", |c| Box::pin(openai::responses::delete(c))),
    kept(
        Method::GET,
        "/v1/responses/{response}/input_items",
        Some(answers::INPUT_ITEMS_PARAMS),
        "what a response answered",
        |c| Box::pin(openai::responses::input_items(c)),
    ),
    post("/v1/embeddings", OpenAi, vectors::EMBEDDINGS_PARAMS, "make vectors of texts", |c| {
        Box::pin(embeddings::create(c))
    }),
    post("/embeddings", OpenAi, vectors::STATES_PARAMS, "make vectors of texts, or of their tokens", |c| {
        Box::pin(embeddings::states(c))
    })
    .also(&["/embedding"]),
    post("/v1/rerank", OpenAi, ranks::RERANK_PARAMS, "order documents by a query", |c| {
        Box::pin(rerank::create(c))
    })
    .also(&["/rerank", "/v1/reranking", "/reranking"]),
    post("/completion", OpenAi, cpp::COMPLETION_PARAMS, "continue a text, with llama.cpp's names", |c| {
        Box::pin(llamacpp::completion(c))
    })
    .also(&["/completions"]),
    post("/infill", OpenAi, cpp::INFILL_PARAMS, "fill in text between two others", |c| {
        Box::pin(llamacpp::infill(c))
    }),
    query("/props", cpp::PROPS_PARAMS, "what the server is", |c| Box::pin(llamacpp::props(c))),
    query("/slots", cpp::SLOTS_PARAMS, "the places for answers", |c| Box::pin(llamacpp::slots(c))),
    post("/tokenize", OpenAi, ids::TOKENIZE_PARAMS, "text to token ids", |c| Box::pin(tokens::tokenize(c))),
    post("/detokenize", OpenAi, ids::DETOKENIZE_PARAMS, "token ids to text", |c| {
        Box::pin(tokens::detokenize(c))
    }),
    post("/v1/messages", Anthropic, claude::MESSAGES_PARAMS, "answer a conversation", |c| {
        Box::pin(anthropic::create(c))
    }),
    post(
        "/v1/messages/count_tokens",
        Anthropic,
        claude::COUNT_PARAMS,
        "count a conversation's tokens",
        |c| Box::pin(anthropic::count(c)),
    ),
    post("/api/chat", Ollama, llama::CHAT_PARAMS, "answer a conversation", |c| Box::pin(ollama::chat(c))),
    post("/api/generate", Ollama, llama::GENERATE_PARAMS, "answer or continue a text", |c| {
        Box::pin(ollama::generate(c))
    }),
    post("/api/embed", Ollama, vectors::EMBED_PARAMS, "make vectors of texts", |c| {
        Box::pin(embeddings::embed_ollama(c))
    }),
    post("/api/embeddings", Ollama, vectors::OLD_EMBEDDINGS_PARAMS, "make a vector of a text", |c| {
        Box::pin(embeddings::embed_old(c))
    }),
    post("/api/pull", Ollama, llama::PULL_PARAMS, "fetch a model, if the operator allows it", |c| {
        Box::pin(pull::create(c))
    }),
    get("/api/tags", Ollama, Keyed, "the models", |c| Box::pin(info::tags(c))),
    get("/api/ps", Ollama, Keyed, "the models that are loaded", |c| Box::pin(info::ps(c))),
    post("/api/show", Ollama, llama::SHOW_PARAMS, "what a model is", |c| Box::pin(info::show(c))),
    get("/api/version", Ollama, Keyed, "the server's version", |c| Box::pin(info::version(c))),
];

/// Whose clients ask for a path, also where there is no such route.
pub(crate) fn dialect_of(path: &str) -> Dialect {
    match path {
        _ if path.starts_with("/api/") => Ollama,
        _ if path.starts_with("/v1/messages") => Anthropic,
        _ => OpenAi,
    }
}

/// The methods that a path takes.
pub(crate) fn methods_of(path: &str) -> Vec<&'static str> {
    let leads = |own: &str| match own.split_once("{*") {
        Some((start, _)) => path.len() > start.len() && path.starts_with(start),
        None => {
            let is_piece =
                |(want, piece): (&str, &str)| want == piece || (want.starts_with('{') && !piece.is_empty());
            let (wanted, pieces) = (own.split('/'), path.split('/'));
            wanted.clone().count() == pieces.clone().count() && wanted.zip(pieces).all(is_piece)
        }
    };
    let is_exact = ROUTES.iter().any(|route| route.paths().any(|own| own == path));
    let takes = |route: &&Route| route.paths().any(|own| if is_exact { own == path } else { leads(own) });
    ROUTES.iter().filter(takes).map(|route| route.method.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_methods_and_dialects() {
        assert_eq!(methods_of("/v1/models"), ["GET"]);
        assert_eq!(methods_of("/v1/models/a:b"), ["GET"]);
        assert_eq!(methods_of("/v1/messages"), ["POST"]);
        assert_eq!(methods_of("/v1/responses/resp_1"), ["GET", "DELETE"]);
        assert_eq!(methods_of("/v1/responses/resp_1/input_items"), ["GET"]);
        assert_eq!(methods_of("/reranking"), ["POST"]);
        assert!(methods_of("/v1").is_empty());
        for route in ROUTES {
            for path in route.paths() {
                assert_eq!(dialect_of(path), route.dialect, "{path}");
            }
        }
    }
}
