//! Models that clients have fetched.

use anyhow::Result;
use smelt_server::{ModelSource, PullError, Puller};
use smelt_store::{Progress, Reference, StoreError};

use super::{Args, source};
use crate::config::Config;
use crate::context::Context;

/// Fetches models into the store for clients, and says how they are served.
#[derive(Debug)]
pub(super) struct Fetcher {
    args: Args,
    config: Config,
    context: Context,
}

impl Fetcher {
    pub(super) fn new(config: &Config, context: &Context) -> Result<Self> {
        let args = config.settle("serve", &[])?;
        Ok(Self { args, config: config.clone(), context: context.clone() })
    }
}

/// What a client may have fetched. Files of this machine and addresses are not for it to name.
fn pullable(name: &str) -> Result<Reference, PullError> {
    let name = name.strip_suffix(":latest").unwrap_or(name);
    match Reference::parse(name) {
        Ok(reference @ (Reference::Catalogue { .. } | Reference::HuggingFace { .. })) => Ok(reference),
        _ => Err(PullError::Unknown(format!(
            "{name:?} can't be pulled from here: a model is named like smollm2:135m or hf:OWNER/REPO/FILE.gguf"
        ))),
    }
}

impl Puller for Fetcher {
    fn pull(&self, name: &str, progress: &mut dyn Progress) -> Result<ModelSource, PullError> {
        let Self { args, config, context } = self;
        let reference = pullable(name)?;
        let installed = context.store.pull(&reference, &context.pull_settings(), progress);
        let installed = installed.map_err(|error| match error {
            StoreError::Cancelled => PullError::Stopped,
            StoreError::UnknownModel { .. } => PullError::Unknown(told(&error)),
            error => PullError::Failed(told(&error)),
        })?;
        // With the tag that was meant.
        let whole = installed.manifest.and_then(|manifest| Reference::parse(&manifest.reference).ok());
        let source = source(args, usize::MAX, &whole.unwrap_or(reference), config, context);
        source.map_err(|error| PullError::Failed(format!("{error:#}")))
    }
}

/// An error with its hint, for a client.
fn told(error: &StoreError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}
