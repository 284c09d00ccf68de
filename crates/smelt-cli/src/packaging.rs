//! What is in `packaging/` names flags, settings and versions that exist.

use std::fs;
use std::path::Path;

use clap::Parser;

use crate::config::SETTINGS;
use crate::{Cli, env};

fn read(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a folder of the workspace");
    fs::read_to_string(root.join(name)).unwrap()
}

/// What stands behind a word at the beginning of lines, without line breaks that `\` hides.
fn behind(text: &str, word: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let found: Vec<_> = lines.filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect();
    assert!(!found.is_empty(), "{word} is missing");
    found
}

/// The command line is one that the command takes.
fn check(words: &[&str]) {
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

/// Each of `NAME=VALUE` is a variable that the command reads, with a value that it takes.
fn check_variables(assignments: &str, others: &[&str]) {
    for (name, value) in assignments.split_whitespace().map(|word| word.split_once('=').unwrap()) {
        match SETTINGS.iter().find(|setting| env::setting_name(setting.key) == name) {
            Some(setting) => drop(setting.parse(value).unwrap_or_else(|error| panic!("{name}: {error}"))),
            None => assert!(name == env::SMELT_HOME.name || others.contains(&name), "nobody reads {name}"),
        }
    }
}

#[test]
fn the_unit_of_systemd_is_of_this_version() {
    let unit = read("packaging/smelt.service");
    for line in behind(&unit, "ExecStart=") {
        let words: Vec<&str> =
            line.split_whitespace().map(|word| if word.starts_with('$') { "m" } else { word }).collect();
        check(&words);
    }
    behind(&unit, "Environment=").iter().for_each(|line| check_variables(line, &["SMELT_MODELS"]));
    let drain = SETTINGS.iter().find(|setting| setting.key == "drain").and_then(|drain| drain.default());
    let timeout = behind(&unit, "TimeoutStopSec=").remove(0);
    assert!(
        timeout.parse::<u32>().unwrap() > drain.unwrap().parse().unwrap(),
        "open requests need their time"
    );
}

#[test]
fn the_image_is_of_this_version() {
    let file = read("packaging/Dockerfile");
    let array = |text: &str| serde_json::from_str::<Vec<String>>(&text[text.find('[').unwrap()..]).unwrap();
    let entry = array(&behind(&file, "ENTRYPOINT").remove(0));
    let command = [entry.clone(), array(&behind(&file, "CMD").remove(0))].concat();
    let health = array(&behind(&file, "HEALTHCHECK").remove(0));
    for words in [command, health] {
        check(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    behind(&file, "ENV").iter().for_each(|line| check_variables(line, &[]));
    assert_eq!(behind(&file, "EXPOSE").remove(0).trim(), smelt_server::DEFAULT_PORT.to_string());
    let channel = behind(&read("rust-toolchain.toml"), "channel = ").remove(0);
    let version = channel.trim_matches('"').rsplit_once('.').unwrap().0.to_owned();
    assert!(
        behind(&file, "FROM").remove(0).starts_with(&format!(" rust:{version}-")),
        "it is built by another Rust"
    );
}
