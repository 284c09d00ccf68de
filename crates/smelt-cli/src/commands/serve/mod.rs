//! `smelt serve`.

mod fetcher;

use std::fmt::Write;
use std::net::{Ipv6Addr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use clap::builder::NonEmptyStringValueParser;
use smelt_api::Effort;
use smelt_checkpoint::Checkpoint;
use smelt_engine::scheduler::{KvBudget, SchedulerSettings};
use smelt_engine::tokenizer::chat::FAMILIES;
use smelt_engine::{KvFormat, System};
use smelt_server::{ApiKey, Defaults, Launch, Limits, ModelSource, Server, Settings, Tls, Traces};
use smelt_store::{Installed, Reference};
use tracing_subscriber::filter::LevelFilter;

use self::fetcher::Fetcher;
use super::load::{MachineArgs, locate, names, stem};
use super::run::SamplingArgs;
use crate::config::Config;
use crate::context::{Context, parse_reference};
use crate::interrupt::Listener;
use crate::log::Lines;
use crate::report::{Hinted, Usage};
use crate::servers::{self, Detached, Holder, Record, Served};
use crate::{env, report};

/// Serve models over HTTP: OpenAI's, Anthropic's and Ollama's interfaces
///
/// Models are fetched first if they aren't here, and loaded at once; GET /health says 503 until then. Without a MODEL, all
/// that are installed are offered, and loaded when somebody asks for them. Clients ask for a model by the name it has here:
/// a name of the catalogue, or a file's name without its ending, unless --name gives another one. GET /openapi.json lists
/// the routes.
///
/// The server listens to this machine only, unless --host says otherwise; then give it an API key. SIGTERM and Ctrl-C
/// let open requests end first; Ctrl-C twice quits.
///
/// `smelt config` keeps settings of all models, or of each, that stand for flags that aren't given.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  smelt serve smollm2:135m
  smelt serve --memory 8192 --idle-timeout 600
  smelt serve ./big.gguf ./small.gguf --name big --name small --ctx 8192
  smelt serve smollm2:135m -d
  smelt serve smollm2:135m --host 0.0.0.0 --api-key-file keys.txt --log json
  curl http://127.0.0.1:11435/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'")]
pub(crate) struct Args {
    /// smollm2:135m, ./file.gguf, hf:OWNER/REPO/FILE.gguf, https://HOST/FILE.gguf
    #[arg(value_name = "MODEL", value_parser = parse_reference)]
    models: Vec<Reference>,
    /// Names that clients ask for, in the order of the models
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: Vec<String>,
    /// Another name by which clients may ask for a model, as gpt-4o=big; =MODEL may be left out if there is only one
    #[arg(long, value_name = "ALIAS=MODEL")]
    alias: Vec<String>,
    #[command(flatten)]
    template: TemplateArgs,
    /// Tokens that a request may have with its answer [default: as many as the model was trained on]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    ctx: Option<u32>,
    /// Go on in the background once the models are loaded; `smelt ps`, `logs`, `restart` and `stop` are for such a server
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    sharing: SharingArgs,
    #[command(flatten)]
    life: LifeArgs,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// What stands for the models' own chat templates.
#[derive(Debug, clap::Args)]
struct TemplateArgs {
    /// Chat template instead of the models' own: chatml, llama3, … or its text, as Jinja
    #[arg(long, value_name = "NAME|TEXT", conflicts_with = "chat_template_file")]
    chat_template: Option<String>,
    /// A file with such a template
    #[arg(long, value_name = "FILE")]
    chat_template_file: Option<PathBuf>,
}

/// What stands for the parameters that a request leaves out.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Answers, where a request says nothing")]
struct AnswerArgs {
    /// Longest answer in tokens [default: as long as the context holds]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_tokens: Option<u32>,
    /// How much models that can think do so: none, minimal, low, medium, high, xhigh [default: as their templates say]
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort)]
    reasoning_effort: Option<Effort>,
    /// Tokens of thought, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i32::MAX as i64))]
    thinking_budget: Option<u32>,
}

fn parse_effort(word: &str) -> Result<Effort, String> {
    Effort::from_name(word).ok_or_else(|| "it is none, minimal, low, medium, high or xhigh".to_owned())
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
struct NetworkArgs {
    /// Name or address to listen on
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    host: String,
    /// Port to listen on; 0 takes one that is free
    #[arg(long, value_name = "N", default_value_t = smelt_server::DEFAULT_PORT)]
    port: u16,
    /// A key that requests must have; may be given several times [env: SMELT_API_KEY]
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// A file with such keys, one per line: other users of this machine can't see them
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// A certificate, with those that vouch for it behind it, in PEM: the server speaks TLS
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// An origin whose web pages may ask the server, such as `https://example.org`; * for any
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Serve no chat page
    #[arg(long)]
    no_page: bool,
    /// Largest body of a request, in MiB
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    max_body: u16,
    /// Seconds for open requests once the server is told to stop
    #[arg(long, value_name = "N", default_value_t = 30)]
    drain: u16,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sharing")]
struct SharingArgs {
    /// Answers that are computed at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    parallel: u16,
    /// Requests that may wait; more are told to try again
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    queue: u16,
    /// Seconds that a request may wait
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u16).range(1..))]
    queue_time: u16,
    /// Memory for keys and values of each model, in MiB; it is taken as it fills
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    kv_memory: u32,
}

/// How long models are loaded.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Models")]
struct LifeArgs {
    /// Memory for all models that are loaded, in MiB; the one that was used least lately makes room [default: seven eighths
    /// of what this machine or container has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    memory: Option<u32>,
    /// Seconds until a model is unloaded that nobody uses; 0 for never
    #[arg(long, value_name = "N", default_value_t = 300)]
    idle_timeout: u32,
    /// Load models when somebody asks for them, not at once
    #[arg(long)]
    no_prewarm: bool,
    /// Let clients have models of the catalogue and of Hugging Face fetched, by Ollama's /api/pull
    #[arg(long)]
    allow_pull: bool,
    /// Seconds without a step until an engine counts as stuck and is started again
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    step_time: u32,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
struct LogArgs {
    /// Form of the log, on standard error
    #[arg(long, value_name = "FORM", default_value = "text")]
    log: LogForm,
    /// How much is logged; prompts and answers never are
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// An OpenTelemetry collector that gets a span of each request by OTLP over HTTP, such as http://127.0.0.1:4318;
    /// prompts and answers are in none [env: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogForm {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    if args.name.len() > args.models.len() {
        let problem = format!("--name is given {} times for {} models", args.name.len(), args.models.len());
        return Err(Usage(problem).into());
    }
    let config = context.config()?;
    let args: &Args = &config.settle("serve", &[])?;
    if args.detach && !servers::is_detached() {
        tell(&Detached::new(&context.state, args.network.port)?.start()?, context);
        return Ok(());
    }
    let mut settings = settings(args, &config, context)?;
    let own_key = match settings.api_keys.is_empty() {
        true => None,
        false => Some(random_key()?),
    };
    settings.api_keys.extend(own_key.as_deref().map(ApiKey::new));
    let models = sources(args, &config, context)?;
    // The first Ctrl-C is the server's to hear, a second one quits.
    let _listener = Listener::new();
    let served: Vec<Served> = models.iter().map(served).collect();
    let has_tls = settings.tls.is_some();
    let server = Server::bind(settings, models).map_err(|error| taken(error, context))?;
    let mut record = Record::new(server.address(), has_tls, served, own_key);
    if args.detach {
        record.detached = Some(Detached::new(&context.state, record.address.port())?);
    }
    let registered = servers::register(&context.state, &record);
    match &record.detached {
        Some(detached) => detached.leave(&record)?,
        None if !context.quiet => {
            let url = record.listens();
            report::note(&format!("listening on {url} (OpenAI: {url}/v1); Ctrl-C ends it"));
        }
        None => {}
    }
    let lines = log(&args.log)?;
    if let Err(error) = &registered {
        // Nothing to write in is no reason to serve nothing.
        report::warn(&format!("`smelt ps` and `stop` won't find this server: {error:#}"));
    }
    let ended = server.run();
    lines.finish();
    Ok(ended?)
}

/// Says where a server is that goes on by itself.
pub(crate) fn tell(record: &Record, context: &Context) {
    if !context.quiet {
        let (url, pid) = (record.listens(), record.pid);
        report::note(&format!(
            "process {pid} listens on {url} (OpenAI: {url}/v1); `smelt logs -f` shows its log, \
             `smelt stop` ends it"
        ));
    }
}

/// A host; addresses of IPv6 may have the brackets that they have in URLs.
fn host(text: &str) -> Result<String, &'static str> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare.filter(|bare| bare.parse::<Ipv6Addr>().is_ok()).unwrap_or(text) {
        host if host.is_empty() || host.contains(['[', ']']) => Err("it is no name or address"),
        host => Ok(host.to_owned()),
    }
}

/// What other commands are told of a model.
fn served(model: &ModelSource) -> Served {
    let file = model.file.canonicalize().unwrap_or_else(|_| model.file.clone());
    Served { name: model.name.clone(), file, context: model.engine.context }
}

/// Why the server has no address, and where that is known, who has it.
fn taken(error: smelt_server::Error, context: &Context) -> anyhow::Error {
    let smelt_server::Error::Bind { host, port, source } = &error else { return error.into() };
    if source.kind() != std::io::ErrorKind::AddrInUse {
        return error.into();
    }
    let addresses = (host.as_str(), *port).to_socket_addrs().into_iter().flatten();
    let holder = addresses.into_iter().find_map(|address| servers::port_holder(address.ip(), *port));
    let running = servers::running(&context.state).unwrap_or_default().known;
    let own = running
        .iter()
        .find(|server| matches!(holder, Some(Holder::Process { pid, .. }) if pid == server.record.pid));
    let (who, hint) = match (own, holder) {
        (Some(server), _) => {
            let Record { pid, version, .. } = &server.record;
            let hint = format!("use it, or `smelt stop --port {port}`; --port N takes another port");
            (format!("smelt {version}, process {pid}, serves there"), hint)
        }
        (None, Some(holder)) => (format!("{holder} listens there"), "--port N takes another port".to_owned()),
        (None, None) => ("it is taken".to_owned(), "--port N takes another port".to_owned()),
    };
    Hinted { problem: format!("cannot listen on port {port} of {host}: {who}"), hint }.into()
}

/// A key for programs of this person.
fn random_key() -> Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("the system gives no random numbers")?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn settings(args: &Args, config: &Config, context: &Context) -> Result<Settings> {
    let (network, sharing, life) = (&args.network, &args.sharing, &args.life);
    let memory = life.memory.map(|mib| u64::from(mib) << 20);
    Ok(Settings {
        host: network.host.clone(),
        port: network.port,
        tls: tls(network)?,
        api_keys: keys(network)?,
        cors_origins: network.cors_origin.clone(),
        page: !network.no_page,
        limits: Limits {
            body: usize::from(network.max_body) << 20,
            queue_time: Duration::from_secs(sharing.queue_time.into()),
            drain_time: Duration::from_secs(network.drain.into()),
            step_time: Duration::from_secs(life.step_time.into()),
            ..Limits::default()
        },
        scheduler: SchedulerSettings {
            max_sequences: sharing.parallel.into(),
            max_queue: sharing.queue.into(),
            kv: KvBudget::Bytes(u64::from(sharing.kv_memory) << 20),
            ..SchedulerSettings::default()
        },
        launch: Launch::own().context("cannot find this program")?,
        memory: memory.or_else(|| Some(System::this_machine().memory()? / 8 * 7)),
        idle_time: (life.idle_timeout > 0).then(|| Duration::from_secs(life.idle_timeout.into())),
        puller: match life.allow_pull {
            true => Some(Arc::new(Fetcher::new(config, context)?)),
            false => None,
        },
        traces: traces(&args.log),
        stop_on_signals: true,
    })
}

/// The collector of the flag, the settings or OpenTelemetry's own variable.
fn traces(args: &LogArgs) -> Option<Traces> {
    let endpoint = args.otlp.clone().or_else(|| env::OTEL_EXPORTER_OTLP_ENDPOINT.get())?;
    Some(Traces { endpoint, service: env::OTEL_SERVICE_NAME.get().unwrap_or_else(|| "smelt".to_owned()) })
}

/// The certificate and its key; they come from flags and settings, so that clap can't see whether both are there.
fn tls(network: &NetworkArgs) -> Result<Option<Tls>> {
    match (&network.tls_cert, &network.tls_key) {
        (Some(certificate), Some(key)) => Ok(Some(Tls::read(certificate, key)?)),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Usage("--tls-cert needs --tls-key, too".to_owned()).into()),
        (None, Some(_)) => Err(Usage("--tls-key needs --tls-cert, too".to_owned()).into()),
    }
}

/// The keys of the flags, the file and the environment.
fn keys(network: &NetworkArgs) -> Result<Vec<ApiKey>> {
    let mut keys = network.api_key.clone();
    keys.extend(env::SMELT_API_KEY.get());
    if let Some(file) = &network.api_key_file {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let before = keys.len();
        keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
        if keys.len() == before {
            return Err(Usage(format!("{} holds no key; write one per line", file.display())).into());
        }
    }
    if keys.iter().any(String::is_empty) {
        return Err(Usage("an API key must not be empty".to_owned()).into());
    }
    // Any other is never the one that a request has.
    let can_be_sent =
        |key: &String| key.trim() == key && key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !keys.iter().all(can_be_sent) {
        let problem =
            "an API key must be of visible ASCII characters, without spaces at its ends: a header carries it";
        return Err(Usage(problem.to_owned()).into());
    }
    Ok(keys.iter().map(|key| ApiKey::new(key)).collect())
}

/// The models that are named, or all that are installed and can be read, with their aliases.
fn sources(args: &Args, config: &Config, context: &Context) -> Result<Vec<ModelSource>> {
    let mut sources = offered(args, config, context)?;
    let given = args.alias.iter().map(|alias| given_alias(alias, &sources)).collect::<Result<Vec<_>>>()?;
    // A name means one model: those that were given go before those that follow from them.
    let names = sources.iter().map(|source| &source.name);
    let mut taken: Vec<String> = names.chain(given.iter().map(|(alias, _)| alias)).cloned().collect();
    for source in &mut sources {
        source.aliases.retain(|alias| !taken.contains(alias));
        taken.extend(source.aliases.iter().cloned());
    }
    given.into_iter().for_each(|(alias, i)| sources[i].aliases.push(alias));
    Ok(sources)
}

/// An alias that was given, and which model's it is.
fn given_alias(alias: &str, sources: &[ModelSource]) -> Result<(String, usize)> {
    let (alias, name) = match alias.split_once('=') {
        Some((alias, name)) => (alias, Some(name)),
        None => (alias, None),
    };
    let of = match (name, sources) {
        (None, [_]) => Some(0),
        (name, several) => several.iter().position(|source| Some(source.name.as_str()) == name),
    };
    of.filter(|_| !alias.is_empty()).map(|i| (alias.to_owned(), i)).ok_or_else(|| {
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        let names = names.join(", ");
        Usage(format!("--alias {alias}: say of which model, as --alias NAME=MODEL: {names}")).into()
    })
}

fn offered(args: &Args, config: &Config, context: &Context) -> Result<Vec<ModelSource>> {
    if !args.models.is_empty() {
        let models = args.models.iter().enumerate();
        return models.map(|(i, reference)| source(args, i, reference, config, context)).collect();
    }
    let listing = context.store.list()?;
    let mut problems: Vec<String> = listing.problems.iter().map(ToString::to_string).collect();
    let mut sources: Vec<ModelSource> = Vec::new();
    for manifest in listing.installed.iter().filter_map(|installed| installed.manifest.as_ref()) {
        let reference = Reference::parse(&manifest.reference)?;
        match source(args, usize::MAX, &reference, config, context) {
            Ok(mut source) => {
                // Files of one name may come from several places.
                if sources.iter().any(|other| other.name == source.name) {
                    source.name.clone_from(&manifest.reference);
                }
                sources.push(source);
            }
            Err(error) => problems.push(format!("{reference}: {error:#}")),
        }
    }
    problems.iter().for_each(|problem| report::warn(&format!("a model is not offered: {problem}")));
    if sources.is_empty() && !args.life.allow_pull {
        let problem = "no model is installed, and none is named".to_owned();
        let hint = "`smelt serve smollm2:135m` fetches one; `smelt list --available` shows more".to_owned();
        return Err(Hinted { problem, hint }.into());
    }
    Ok(sources)
}

fn source(
    args: &Args,
    index: usize,
    reference: &Reference,
    config: &Config,
    context: &Context,
) -> Result<ModelSource> {
    let installed = locate(reference, context)?;
    let file = installed.manifest.as_ref().and_then(|manifest| manifest.files.first());
    let name = match (args.name.get(index), reference, file) {
        (Some(name), _, _) => name.clone(),
        (None, Reference::Catalogue { .. }, _) => reference.to_string(),
        (None, _, Some(file)) => stem(Path::new(&file.name)),
        (None, _, None) => stem(&installed.path),
    };
    let checkpoint = Checkpoint::open(&installed.path)?;
    let aliases = aliases(&installed, context);
    let mut known = vec![name.clone()];
    known.extend(names(reference, context));
    let own: Args = config.settle("serve", &known)?;
    let settings = own.machine.settings(own.ctx.map(|n| n as usize), KvFormat::F16);
    Ok(ModelSource {
        name,
        aliases,
        template: own.template.read()?,
        quantization: dominant_format(&checkpoint).to_owned(),
        digest: file.map(|file| format!("sha256:{}", file.sha256)).unwrap_or_default(),
        file: installed.path,
        engine: smelt_engine::Settings {
            // Every answer of a step has a row whose logits are wanted.
            logit_rows: usize::from(args.sharing.parallel).max(settings.logit_rows),
            ..settings
        },
        defaults: Defaults {
            max_tokens: own.answer.max_tokens.map(|n| n as usize),
            effort: own.answer.reasoning_effort,
            thinking_budget: own.answer.thinking_budget.map(|n| n as usize),
            ..own.sampling.defaults(config.chosen(&known))?
        },
        warm: !args.models.is_empty() && !args.life.no_prewarm,
    })
}

impl TemplateArgs {
    /// The template's text, if there is one. A file may come from settings, so that the other flag goes before it.
    fn read(&self) -> Result<Option<String>> {
        let Some(given) = &self.chat_template else {
            let read = |file: &PathBuf| {
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
            };
            return self.chat_template_file.as_ref().map(read).transpose();
        };
        if let Some(family) = FAMILIES.iter().find(|family| family.name == given) {
            return Ok(Some(family.template.to_owned()));
        }
        if given.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
            let problem = format!("there is no chat template {given:?}; there are {}", names.join(", "));
            return Err(Usage(problem).into());
        }
        Ok(Some(given.clone()))
    }
}

/// What else a model of the store goes by: its whole name there, and without its tag where that means the same.
fn aliases(installed: &Installed, context: &Context) -> Vec<String> {
    let Some(manifest) = &installed.manifest else { return Vec::new() };
    let mut aliases = vec![manifest.reference.clone()];
    if let Ok(Reference::Catalogue { name, tag }) = Reference::parse(&manifest.reference) {
        let usual = context.store.catalogue().find(&name, None);
        if usual.is_some_and(|model| Some(&model.tag) == tag.as_ref()) {
            aliases.push(name);
        }
    }
    aliases
}

/// The format that holds most of the weights' bytes.
fn dominant_format(checkpoint: &Checkpoint) -> &'static str {
    let mut bytes: Vec<(&'static str, usize)> = Vec::new();
    for tensor in checkpoint.tensors() {
        match bytes.iter_mut().find(|(name, _)| *name == tensor.format.name) {
            Some((_, sum)) => *sum += tensor.byte_len,
            None => bytes.push((tensor.format.name, tensor.byte_len)),
        }
    }
    bytes.into_iter().max_by_key(|(_, sum)| *sum).map_or("", |(name, _)| name)
}

/// Sends what the server tells to standard error.
fn log(args: &LogArgs) -> Result<Lines> {
    let level = match args.log_level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let lines = Lines::start().context("cannot start a thread")?;
    let writer = lines.clone();
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(move || writer.clone())
        .with_target(false);
    match args.log {
        LogForm::Json => builder.json().flatten_event(true).init(),
        LogForm::Text => {
            use std::io::IsTerminal;
            let colours = std::io::stderr().is_terminal() && env::NO_COLOR.get().is_none();
            builder.with_ansi(colours).init();
        }
    }
    Ok(lines)
}
