//! What the commands that load a model have in common.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use smelt_engine::{BackendChoice, Engine, Isa, IsaChoice, KvFormat, Settings};
use smelt_store::Reference;

use crate::context::{Context, parse_reference};
use crate::interrupt::Listener;
use crate::progress::Reporter;
use crate::{report, wait};

/// The model of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArg {
    /// smollm2:135m, ./file.gguf, hf:OWNER/REPO/FILE.gguf, https://HOST/FILE.gguf
    #[arg(value_name = "MODEL", value_parser = parse_reference)]
    reference: Reference,
}

impl ModelArg {
    /// The model's file; it is pulled if it isn't here.
    pub(crate) fn locate(&self, context: &Context) -> Result<PathBuf> {
        if let Some(installed) = context.store.resolve(&self.reference)? {
            return Ok(installed.path);
        }
        let _listener = Listener::new();
        let mut reporter = Reporter::new(context.quiet);
        let installed = context.store.pull(&self.reference, &context.pull_settings(), &mut reporter);
        Ok(installed.map_err(|error| reporter.untold(error))?.path)
    }
}

/// How the model is run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Machine")]
pub(crate) struct MachineArgs {
    /// Threads [default: one per physical core that this process may use]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) threads: Option<u16>,
    /// Most tokens of a prompt that are computed at once
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) batch: u16,
    /// How keys and values are kept [default: f16; f32 for eval]
    #[arg(long, value_name = "TYPE")]
    cache_type: Option<CacheType>,
    /// What computes: integer kernels on the CPU, or the exact and slow reference
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    backend: BackendName,
    /// Instruction set of the CPU backend; slower ones than the CPU has are for measurements
    #[arg(long, value_name = "NAME", hide = true)]
    isa: Option<IsaName>,
    /// Load a model whose tokenizer has unknown rules, with the usual ones
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CacheType {
    F16,
    F32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BackendName {
    Cpu,
    Reference,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IsaName {
    Scalar,
    Avx2,
    Avx512,
}

impl MachineArgs {
    /// The engine's settings, with a cache of `cache` unless the flag says otherwise.
    pub(crate) fn settings(&self, context: Option<usize>, cache: KvFormat) -> Settings {
        Settings {
            backend: match self.backend {
                BackendName::Cpu => BackendChoice::Cpu,
                BackendName::Reference => BackendChoice::Reference,
            },
            context,
            batch: usize::from(self.batch),
            kv_format: match self.cache_type {
                None => cache,
                Some(CacheType::F16) => KvFormat::F16,
                Some(CacheType::F32) => KvFormat::F32,
            },
            threads: self.threads.map(usize::from),
            isa: match self.isa {
                None => IsaChoice::Auto,
                Some(IsaName::Scalar) => IsaChoice::Only(Isa::Scalar),
                Some(IsaName::Avx2) => IsaChoice::Only(Isa::Avx2),
                Some(IsaName::Avx512) => IsaChoice::Only(Isa::Avx512Vnni),
            },
            force: self.force,
            ..Settings::default()
        }
    }
}

/// Loads a model, with a spinner if it takes long.
pub(crate) fn load(model: &ModelArg, settings: &Settings, context: &Context) -> Result<Engine> {
    let path = model.locate(context)?;
    let load = || Engine::load(&path, settings);
    if context.quiet {
        return Ok(load()?);
    }
    let engine = wait::with_spinner("loading the model", load)?;
    let facts = engine.facts();
    if facts.context > facts.trained_context {
        report::warn(&format!(
            "the context of {} tokens is longer than the {} that the model was trained on; far behind them its answers \
             may make no sense",
            facts.context, facts.trained_context
        ));
    }
    Ok(engine)
}
