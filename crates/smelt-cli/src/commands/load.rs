//! What the commands that load a model have in common.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use smelt_engine::{BackendChoice, Engine, Isa, IsaChoice, KvFormat, KvFormats, Numa, Repack, Settings};
use smelt_store::{Installed, Reference};

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
    /// What it goes by in config.toml.
    pub(crate) fn names(&self, context: &Context) -> Vec<String> {
        names(&self.reference, context)
    }

    /// The model's file, if it is here.
    pub(crate) fn installed(&self, context: &Context) -> Result<Option<PathBuf>> {
        Ok(context.store.resolve(&self.reference)?.map(|installed| installed.path))
    }

    /// The model's file; it is pulled if it isn't here.
    pub(crate) fn locate(&self, context: &Context) -> Result<PathBuf> {
        Ok(locate(&self.reference, context)?.path)
    }
}

/// What a model goes by in config.toml, the closest name first: as it is asked for, with the tag that is meant, and
/// without a tag or, of files, an ending.
pub(crate) fn names(reference: &Reference, context: &Context) -> Vec<String> {
    let mut names = vec![reference.to_string()];
    match reference {
        Reference::Catalogue { name, tag } => {
            let known = context.store.catalogue().find(name, tag.as_deref());
            names.extend(known.map(|model| format!("{}:{}", model.name, model.tag)));
            names.push(name.clone());
        }
        Reference::Path(path) => names.push(stem(path)),
        Reference::HuggingFace { file, .. } => names.push(stem(Path::new(file))),
        Reference::Url(url) => names.push(stem(Path::new(url.path()))),
    }
    if matches!(reference, Reference::Catalogue { tag: None, .. }) {
        // The tag that is meant says more than the bare name.
        names.rotate_left(1);
    }
    names
}

/// A file's name without its ending.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The model's file and what is known of it; it is pulled if it isn't here.
pub(crate) fn locate(reference: &Reference, context: &Context) -> Result<Installed> {
    if let Some(installed) = context.store.resolve(reference)? {
        return Ok(installed);
    }
    let _listener = Listener::new();
    let mut reporter = Reporter::new(context.quiet);
    let installed = context.store.pull(reference, &context.pull_settings(), &mut reporter);
    Ok(installed.map_err(|error| reporter.untold(error))?)
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
    #[command(flatten)]
    cache: CacheArgs,
    /// What computes: integer kernels on the CPU, or the exact and slow reference
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    backend: BackendName,
    /// On machines with several memory nodes: spread memory over them, or copy the weights to each
    #[arg(long, value_name = "MODE", default_value = "off")]
    numa: NumaName,
    /// Copy the weights to memory on large pages instead of reading them in the file's map; auto doesn't
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    repack: RepackName,
    /// Instruction set of the CPU backend; slower ones than the CPU has are for measurements
    #[arg(long, value_name = "NAME", hide = true)]
    isa: Option<IsaName>,
    /// Load a model whose tokenizer has unknown rules, with the usual ones
    #[arg(long)]
    pub(crate) force: bool,
}

/// How keys and values are kept.
#[derive(Debug, clap::Args)]
pub(crate) struct CacheArgs {
    /// How keys and values are kept [default: f16; f32 for eval]
    #[arg(long, value_name = "TYPE", value_parser = cache_type())]
    cache_type: Option<KvFormat>,
    /// How keys are kept, where it isn't as values are (also -ctk)
    #[arg(long, value_name = "TYPE", value_parser = cache_type())]
    cache_type_k: Option<KvFormat>,
    /// How values are kept, where it isn't as keys are (also -ctv)
    #[arg(long, value_name = "TYPE", value_parser = cache_type())]
    cache_type_v: Option<KvFormat>,
}

impl CacheArgs {
    /// The formats, `default` unless flags say otherwise.
    pub(crate) fn formats(&self, default: KvFormat) -> KvFormats {
        let format = |own: Option<KvFormat>| own.or(self.cache_type).unwrap_or(default);
        KvFormats { k: format(self.cache_type_k), v: format(self.cache_type_v) }
    }
}

/// Names of cache formats.
fn cache_type() -> impl TypedValueParser<Value = KvFormat> {
    PossibleValuesParser::new(KvFormat::ALL.map(KvFormat::name)).map(|name| {
        let named = KvFormat::ALL.into_iter().find(|format| format.name() == name);
        named.expect("the parser knows these names only")
    })
}

/// llama.cpp's short spellings, of more letters than clap's short flags have, and Smelt's long ones.
const SHORT: [(&str, &str); 2] = [("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v")];

/// The command line with the short spellings of cache types written out; what follows `--` stays.
pub(crate) fn spell_out(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words_only = false;
    let spell = |arg: OsString| {
        words_only |= arg == "--";
        match SHORT.iter().find(|(short, _)| !words_only && arg == *short) {
            Some((_, long)) => (*long).into(),
            None => arg,
        }
    };
    args.map(spell).collect()
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NumaName {
    Off,
    Interleave,
    Mirror,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RepackName {
    Auto,
    Off,
    On,
}

impl MachineArgs {
    /// The engine's settings, with a cache of `cache` unless flags say otherwise.
    pub(crate) fn settings(&self, context: Option<usize>, cache: KvFormat) -> Settings {
        Settings {
            backend: match self.backend {
                BackendName::Cpu => BackendChoice::Cpu,
                BackendName::Reference => BackendChoice::Reference,
            },
            context,
            batch: usize::from(self.batch),
            kv_formats: self.cache.formats(cache),
            threads: self.threads.map(usize::from),
            isa: match self.isa {
                None => IsaChoice::Auto,
                Some(IsaName::Scalar) => IsaChoice::Only(Isa::Scalar),
                Some(IsaName::Avx2) => IsaChoice::Only(Isa::Avx2),
                Some(IsaName::Avx512) => IsaChoice::Only(Isa::Avx512Vnni),
            },
            numa: match self.numa {
                NumaName::Off => Numa::Off,
                NumaName::Interleave => Numa::Interleave,
                NumaName::Mirror => Numa::Mirror,
            },
            repack: match self.repack {
                RepackName::Auto => Repack::Auto,
                RepackName::Off => Repack::Off,
                RepackName::On => Repack::On,
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
    if let Some(wanted) = settings.context.filter(|wanted| *wanted > facts.context) {
        let has = facts.context;
        report::warn(&format!(
            "the context is {has} tokens, not {wanted}: the model has learned no more positions"
        ));
    }
    if facts.context > facts.trained_context {
        report::warn(&format!(
            "the context of {} tokens is longer than the {} that the model was trained on; far behind them its answers \
             may make no sense",
            facts.context, facts.trained_context
        ));
    }
    Ok(engine)
}
