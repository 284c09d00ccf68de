//! Settings: written, read, refused, and taken by `run`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::served::Served;
use crate::support::{Done, changed, done, llama, smelt};

/// A home with a file of settings.
struct Home(tempfile::TempDir);

impl Home {
    fn new(text: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::create_dir(home.0.path().join("store")).unwrap();
        fs::write(home.file(), text).unwrap();
        home
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("store/config.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn run(&self, args: &[&str]) -> Done {
        self.run_in(&[], args)
    }

    fn run_in(&self, environment: &[(&str, &str)], args: &[&str]) -> Done {
        done(smelt(self.0.path()).args(args).envs(environment.iter().copied()).spawn().unwrap())
    }
}

const COMMENTED: &str = "\
# Mine.
threads = 2 # a small machine

# For talks.
[profiles.talk]
temperature = 0.5

[models.\"smollm2:135m\"]
# Short.
ctx = 512
";

#[test]
fn what_is_set_is_got_and_comments_stay() {
    let home = Home::new(COMMENTED);
    assert_eq!(home.run(&["config", "get", "threads"]).ok(), "2\n");
    home.run(&["config", "set", "threads", "3"]).ok();
    home.run(&["config", "set", "presence_penalty", "-0.5"]).ok();
    home.run(&["config", "set", "ctx", "256", "--model", "smollm2:135m"]).ok();
    home.run(&["config", "set", "system", "Be \"terse\".", "--model", "a.b"]).ok();
    home.run(&["config", "set", "port", "0", "--profile", "talk"]).ok();
    assert_eq!(home.run(&["config", "get", "presence_penalty"]).ok(), "-0.5\n");
    assert_eq!(home.run(&["config", "get", "system", "--model", "a.b"]).ok(), "Be \"terse\".\n");
    assert_eq!(home.run(&["config", "get", "port", "--profile", "talk"]).ok(), "0\n");
    let text = home.text();
    let expected = "\
# Mine.
threads = 3 # a small machine
presence_penalty = -0.5

# For talks.
[profiles.talk]
temperature = 0.5
port = 0

[models.\"smollm2:135m\"]
# Short.
ctx = 256

[models.\"a.b\"]
system = 'Be \"terse\".'
";
    assert_eq!(text, expected);
    for (key, place) in [
        ("threads", &[][..]),
        ("presence_penalty", &[]),
        ("ctx", &["--model", "smollm2:135m"]),
        ("port", &["--profile", "talk"]),
    ] {
        home.run(&[&["config", "reset", key], place].concat()).ok();
    }
    let left = "\
# Mine.

# For talks.
[profiles.talk]
temperature = 0.5

[models.\"smollm2:135m\"]
# Short.

[models.\"a.b\"]
system = 'Be \"terse\".'
";
    assert_eq!(home.text(), left);
    assert!(home.run(&["config", "reset", "ctx"]).err.contains("has no ctx there"));
    assert_eq!(home.run(&["config", "get", "threads"]).ok(), "unset\n");
}

#[test]
fn a_file_is_made_where_there_is_none() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| done(smelt(home.path()).args(args).spawn().unwrap());
    assert_eq!(run(&["config", "get", "port"]).ok(), "11435\n");
    run(&["config", "set", "cache_type", "q8_0"]).ok();
    assert_eq!(fs::read_to_string(home.path().join("store/config.toml")).unwrap(), "cache_type = \"q8_0\"\n");
}

#[test]
fn a_value_in_whatever_form_is_reset() {
    for text in [
        "models = { a = { ctx = 5, batch = 6 } }\n",
        "models.a.ctx = 5\nmodels.a.batch = 6\n",
        "[models]\na.ctx = 5\na.batch = 6\n",
        "[models.a]\nctx = 5\nbatch = 6",
        "[models.a]\r\nbatch = 6\r\nctx = 5 # five\r\n",
    ] {
        let home = Home::new(text);
        let get = |key: &str| home.run(&["config", "get", key, "--model", "a"]).ok();
        assert_eq!((get("ctx"), get("batch")), ("5\n".into(), "6\n".into()), "{text}");
        home.run(&["config", "set", "ctx", "7", "--model", "a"]).ok();
        assert_eq!((get("ctx"), get("batch")), ("7\n".into(), "6\n".into()), "{text}");
        home.run(&["config", "reset", "ctx", "--model", "a"]).ok();
        assert_eq!((get("ctx"), get("batch")), ("unset\n".into(), "6\n".into()), "{text}");
    }
}

/// Each place of a value that is dropped lets the next one win.
#[test]
fn the_closest_place_wins() {
    let home = Home::new(
        "temperature = 0.1\nctx = 10\n\
         [models.m]\ntemperature = 0.2\nctx = 20\n[profiles.p]\ntemperature = 0.3\nctx = 30\n",
    );
    let model = changed(home.0.path(), &[("general.sampling.temp", 0.4_f32.into())]);
    let environment = [("SMELT_TEMPERATURE", "0.5"), ("SMELT_CTX", "50")];
    let profile = [("SMELT_PROFILE", "p")];
    let of_model = ["--model", model.as_str()];
    let other = ["--model", "other"];
    for (temperature, ctx, environment, args) in [
        ("0.5", "50", &environment[..], &of_model[..]),
        ("0.2", "20", &profile, &of_model),
        ("0.2", "20", &[], &of_model),
        ("0.3", "30", &profile, &other),
        ("0.3", "30", &[], &["--profile", "p"]),
        ("0.1", "10", &[], &other),
        ("0.1", "10", &[], &[]),
    ] {
        let get = |key: &str| home.run_in(environment, &[&["config", "get", key], args].concat()).ok();
        assert_eq!(get("temperature").trim(), temperature, "{environment:?} {args:?}");
        assert_eq!(get("ctx").trim(), ctx, "{environment:?} {args:?}");
    }
    home.run(&["config", "reset", "temperature", "--model", "m"]).ok();
    let get = |args: &[&str]| home.run(&[&["config", "get", "temperature"], args].concat()).ok();
    // The model's own recommendation goes before what stands at the top, and only before that.
    assert_eq!(get(&of_model), "0.4\n");
    assert_eq!(get(&[&of_model[..], &["--profile", "p"]].concat()), "0.3\n");
    let told = home.run(&[&["config", "explain", "temperature"], &of_model[..]].concat()).ok();
    let found: Vec<&str> = told.lines().filter(|line| line.starts_with("0.")).collect();
    let line = format!("0.1    {}:1 (for every model)", home.file().display());
    assert_eq!(found, ["0.4    recommended by the model file", &line, "0.8    default"], "{told}");
}

#[test]
fn run_takes_the_settings() {
    let home = Home::new("");
    let hot = changed(home.0.path(), &[("general.sampling.temp", 50.0_f32.into())]);
    let answer = |environment: &[(&str, &str)], flags: &[&str]| {
        let fixed = ["run", &hot, "--raw", "--backend", "reference", "--ignore-eos", "--seed", "1", "Once"];
        home.run_in(environment, &[&fixed[..], flags].concat()).ok()
    };
    fs::write(home.file(), "max_tokens = 8\n").unwrap();
    let (random, greedy) = (answer(&[], &[]), answer(&[], &["--temp", "0"]));
    assert_ne!(random, greedy);
    fs::write(home.file(), "max_tokens = 8\ntemperature = 0\n[profiles.p]\ntemperature = 0\n").unwrap();
    assert_eq!(answer(&[], &[]), random, "the model's recommendation goes before the top of the file");
    assert_eq!(answer(&[], &["--profile", "p"]), greedy);
    assert_eq!(answer(&[("SMELT_TEMPERATURE", "0")], &[]), greedy);
    assert_eq!(answer(&[("SMELT_TEMPERATURE", "0")], &["--temp", "50"]), random);
    fs::write(home.file(), "max_tokens = 9\n[models.m]\ntemperature = 0\nmax_tokens = 8\n").unwrap();
    assert_eq!(answer(&[], &[]), greedy);
    assert!(answer(&[], &["-n", "4"]).len() < greedy.len());

    let cool = llama();
    let cool = cool.to_str().unwrap();
    fs::write(home.file(), "ctx = 32\nmax_tokens = 1\n").unwrap();
    let context = |flags: &[&str]| {
        let args = [&["run", cool, "--raw", "--json", "Once"], flags].concat();
        home.run(&args).events().remove(0)["context"].clone()
    };
    assert_eq!((context(&[]), context(&["--ctx", "16"])), (32.into(), 16.into()));
}

#[test]
fn show_takes_the_settings() {
    let home = Home::new("cache_type = \"q8_0\"\n");
    let model = llama();
    let model = model.to_str().unwrap();
    let format = |flags: &[&str]| {
        let shown = home.run(&[&["show", model, "--json"], flags].concat()).ok();
        serde_json::from_str::<Value>(&shown).unwrap()["cache"]["key_format"].clone()
    };
    assert_eq!((format(&[]), format(&["--cache-type", "f32"])), ("q8_0".into(), "f32".into()));
}

#[test]
fn serve_takes_the_settings() {
    let home = Home::new("ctx = 48\ntemperature = 0\n[models.cold]\ntemperature = 0\nctx = 32\n");
    let hot = changed(home.0.path(), &[("general.sampling.temp", 50.0_f32.into())]);
    let served = Served::new(home.0.path(), &[&hot, &hot, "--name", "hot", "--name", "cold"]);
    let answer = |model: &str, temperature: Option<f32>| {
        let request = serde_json::json!({
            "model": model, "prompt": "Once", "max_tokens": 8, "seed": 1, "ignore_eos": true, "temperature": temperature,
        });
        served.post("/v1/completions", &request)["choices"][0]["text"].clone()
    };
    let (greedy, random) = (answer("hot", Some(0.0)), answer("hot", None));
    assert_ne!(random, greedy, "the model's recommendation goes before the top of the file");
    assert_eq!(answer("cold", None), greedy, "the model's section goes before its recommendation");
    assert_ne!(answer("cold", Some(2.0)), greedy, "what a request says goes before all");
    let context = |model: &str| {
        let request = serde_json::json!({"model": model, "prompt": "Once ".repeat(100)});
        served.post("/v1/completions", &request)["error"]["n_ctx"].clone()
    };
    assert_eq!((context("hot"), context("cold")), (48.into(), 32.into()));
}

#[test]
fn serve_answers_as_its_flags_say_where_a_request_says_nothing() {
    let home = Home::new("temperature = 0\n[models.m]\ntop_k = 7\nmin_p = 0.3\n");
    let model = changed(home.0.path(), &[("general.sampling.temp", 0.5_f32.into())]);
    let flags =
        ["--name", "m", "--temp", "1.5", "--top-k", "3", "--seed", "7", "-n", "5", "--logit-bias", "9=-inf"];
    let served = Served::of(smelt(home.0.path()).args(["serve", "--port", "0"]).arg(&model).args(flags));
    let settings = |request: &Value| served.post("/completion", request)["generation_settings"].clone();
    let usual = settings(&serde_json::json!({"prompt": "Once", "ignore_eos": true, "logit_bias": [[8, 1]]}));
    let number = |name: &str| usual[name].as_f64().unwrap();
    assert_eq!(["temperature", "top_k", "seed", "n_predict"].map(number), [1.5, 3.0, 7.0, 5.0]);
    assert!((number("min_p") - 0.3).abs() < 1e-6, "what no flag says the settings say");
    let biases = usual["logit_bias"].as_array().unwrap();
    let expected =
        [serde_json::json!({"token": 9, "bias": null}), serde_json::json!({"token": 8, "bias": 1.0})];
    assert!(biases.starts_with(&expected), "{biases:?}");
    let wishes =
        serde_json::json!({"prompt": "Once", "temperature": 0, "top_k": 1, "seed": 8, "n_predict": 2});
    let told = settings(&wishes);
    assert_eq!(
        ["temperature", "top_k", "seed", "n_predict"].map(|name| told[name].as_f64().unwrap()),
        [0.0, 1.0, 8.0, 2.0]
    );
    let seed = |request: &Value| settings(request)["seed"].clone();
    let random = serde_json::json!({"prompt": "Once", "seed": -1});
    assert_ne!(seed(&random), seed(&random), "a new one each time");
}

/// A file that makes no sense, the line that is told, and what is said of it.
const WRONG: &[(&str, usize, &str)] = &[
    ("threads = 1\ntemprature = 1\n", 2, "there is no setting \"temprature\"; do you mean temperature?"),
    ("zzz = 1\n", 1, "there is no setting \"zzz\"; `smelt config list` lists them"),
    ("\n[models.m]\ntop-p = 1\n", 3, "do you mean top_p?"),
    ("[profile.fast]\nctx = 1\n", 1, "there is no section \"profile\"; do you mean profiles?"),
    ("threads = 0\n", 1, "threads takes a whole number from 1 to 512, not 0"),
    ("threads = 1.5\n", 1, "threads takes a whole number from 1 to 512, not 1.5"),
    ("threads = \"2\"\n", 1, "threads takes a whole number from 1 to 512, not \"2\""),
    ("top_p = nan\n", 1, "top_p takes a number from 0 to 1, not nan"),
    ("system = 1\n", 1, "system takes a text in quotes, not 1"),
    ("cache_type = \"q9\"\n", 1, "cache_type takes one of f32, f16, q8_0, q4_0, not \"q9\""),
    ("[threads]\n", 1, "threads is a setting and takes a value; write threads = …"),
    ("[[models.m]]\nctx = 1\n", 1, "write [models.m]"),
    ("models = 1\n", 1, "models is no setting but a section; write [models]"),
    (
        "[models.m]\nport = 1\n",
        2,
        "port is of the whole server, not of a model; move it to the top of the file",
    ),
    ("# a\nthreads = \n", 2, "this is no TOML"),
    ("threads = 1\nthreads = 2\n", 2, "this is no TOML"),
    ("[models.m\nctx = 1\n", 1, "mend the line, or delete it"),
];

#[test]
fn what_makes_no_sense_is_refused_with_its_line() {
    let model = llama();
    for (text, line, what) in WRONG {
        let home = Home::new(text);
        let said = format!("{}:{line}: ", home.file().display());
        for args in [
            &["config", "list"][..],
            &["config", "set", "batch", "8"],
            &["run", model.to_str().unwrap(), "--raw", "Once"],
        ] {
            let done = home.run(args);
            assert!(done.err.contains(&said), "{text:?}: {done:?}");
            done.failed(1, what);
        }
        assert_eq!(home.text(), *text);
        // What needs no settings goes on.
        home.run(&["list"]).ok();
    }
}

#[test]
fn wrong_command_lines_and_variables_are_refused() {
    let home = Home::new("wrong = 1\n");
    home.run(&["config", "reset", "wrong"]).ok();
    assert_eq!(home.text(), "");
    home.run(&["config", "get", "tempreature"]).failed(2, "do you mean temperature?");
    home.run(&["config", "reset", "tempreature"]).failed(2, "do you mean temperature?");
    home.run(&["config", "set", "threads", "many"]).failed(2, "a whole number from 1 to 512, not many");
    home.run(&["config", "set", "ctx", "1", "--model", "m", "--profile", "p"])
        .failed(2, "a section is of one");
    for nonsense in ["", " m", "m\n"] {
        home.run(&["config", "get", "ctx", "--model", nonsense]).failed(2, "a name isn't empty");
    }
    home.run(&["config", "set", "port", "1", "--model", "m"]).failed(1, "port is of the whole server");
    home.run(&["config", "list", "--profile", "p"])
        .failed(1, "has no profile \"p\"; write a section [profiles.p]");
    home.run_in(&[("SMELT_THREADS", "0")], &["config", "list"])
        .failed(1, "SMELT_THREADS: threads takes a whole number from 1 to 512, not 0");
    home.run(&["config", "set", "ctx", "1", "--profile", "fast"]).ok();
    home.run(&["config", "list", "--profile", "fats"]).failed(1, "do you mean fast?");
}

#[test]
fn the_schema_has_what_is_listed() {
    let home = Home::new("threads = 2\n");
    let json = |args: &[&str]| -> Value { serde_json::from_str(&home.run(args).ok()).unwrap() };
    let (schema, list) = (json(&["config", "schema"]), json(&["config", "list", "--json"]));
    let list = list.as_array().unwrap();
    let properties = schema["properties"].as_object().unwrap();
    assert_eq!(properties.len(), list.len() + 2, "and models and profiles");
    assert_eq!((&list[0]["key"], &list[0]["value"]), (&"threads".into(), &2.into()));
    for setting in list {
        let property = &properties[setting["key"].as_str().unwrap()];
        assert!(property["description"].is_string(), "{setting}");
    }
    assert_eq!(properties["port"]["maximum"], 65535);
    assert_eq!(properties["port"]["default"], 11435);
    let model = &properties["models"]["additionalProperties"];
    assert!(model["properties"]["ctx"].is_object() && model["properties"]["port"].is_null());
    assert_eq!(model["additionalProperties"], false);
}

#[test]
fn the_file_is_where_xdg_says() {
    let home = tempfile::tempdir().unwrap();
    let config = |xdg: &Path| {
        let mut command = smelt(home.path());
        command.env_remove("SMELT_HOME").env("HOME", home.path()).env("XDG_CONFIG_HOME", xdg);
        done(command.args(["config", "set", "threads", "1"]).spawn().unwrap()).ok();
    };
    config(&home.path().join("xdg"));
    assert!(home.path().join("xdg/smelt/config.toml").exists());
    config(Path::new(""));
    assert!(home.path().join(".config/smelt/config.toml").exists());
}
