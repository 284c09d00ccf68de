//! The chat: a prompt, answers, and commands with a slash.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use smelt_engine::chat::Message;

use super::editor::{Editor, Input};
use super::knobs::{KEYS, Knobs, find};
use super::printer::Style;
use super::session::Session;
use crate::context::Context;
use crate::output;
use crate::report::{self, Interrupted};

/// The commands: name, argument, what it does.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[
    ("/help", "", "show this"),
    ("/set", "[NAME [VALUE]]", "show or change a setting: /set temperature 0.2, /set system You are terse."),
    ("/save", "FILE", "write the conversation to a JSON file"),
    ("/load", "FILE", "go on with a conversation from a JSON file"),
    ("/clear", "", "forget the conversation"),
    ("/bye", "", "leave, as Ctrl-D does"),
];

const MORE_HELP: &str = "\
Enter sends. A line that ends with \\ goes on in the next; so does everything between \"\"\" and \"\"\".
Ctrl-C stops an answer; pressed twice, it quits.";

struct Chat<'a> {
    session: &'a mut Session,
    knobs: Knobs,
    /// The conversation without the system message, which is a setting.
    messages: Vec<Message>,
    verbose: bool,
}

/// Chats until the person has enough.
pub(super) fn run(session: &mut Session, knobs: Knobs, verbose: bool, context: &Context) -> Result<()> {
    let mut editor = Editor::new(context.store.root())?;
    if !context.quiet {
        report::note(&format!("{}: /help for help, /bye to leave", session.model().facts().name));
    }
    let mut chat = Chat { session, knobs, messages: Vec::new(), verbose };
    let mut interrupts = 0;
    loop {
        match editor.read()? {
            Input::Text(text) => {
                interrupts = 0;
                // What goes wrong with one message ends nothing but that message.
                match chat.input(&text) {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) if report::is_closed_output(&error) => return Err(error),
                    Err(error) => report::print(&error),
                }
            }
            Input::Interrupt => {
                interrupts += 1;
                if interrupts == 2 {
                    return Err(Interrupted.into());
                }
                report::note("Ctrl-C again, Ctrl-D or /bye to leave");
            }
            Input::End => return Ok(()),
        }
    }
}

impl Chat<'_> {
    /// Does what was typed; false to leave.
    fn input(&mut self, text: &str) -> Result<bool> {
        match command(text) {
            Some(("/bye", _)) => return Ok(false),
            Some((name, argument)) => self.command(name, argument)?,
            None if text.trim().is_empty() => {}
            None => self.turn(text)?,
        }
        Ok(true)
    }

    fn turn(&mut self, text: &str) -> Result<()> {
        self.session.begin();
        self.messages.push(Message::new("user", text));
        let fitted = self.session.fit_chat(&self.messages, &self.knobs);
        let answer = fitted.and_then(|fitted| self.session.answer(fitted, &self.knobs, Style::Text));
        // A question without an answer would stand in front of the next one.
        let answer = match answer {
            Ok(answer) if !(answer.interrupted && answer.text.is_empty()) => answer,
            other => {
                self.messages.pop();
                return other.map(|_| ());
            }
        };
        self.messages.push(Message::new("assistant", answer.text));
        if self.verbose {
            self.session.tell_speed(&answer.summary)?;
        }
        Ok(())
    }

    fn command(&mut self, name: &str, argument: &str) -> Result<()> {
        match (name, argument) {
            ("/help", _) => help(),
            ("/set", "") => KEYS.iter().try_for_each(|key| self.show(key.name)),
            ("/set", argument) => match argument.split_once(char::is_whitespace) {
                None => self.show(argument),
                Some((name, value)) => self.knobs.set(name, value.trim()).map_err(anyhow::Error::msg),
            },
            ("/clear", _) => {
                self.messages.clear();
                Ok(())
            }
            ("/save" | "/load", "") => bail!("{name} needs a file: {name} talk.json"),
            ("/save", file) => self.save(Path::new(file)),
            ("/load", file) => self.load(Path::new(file)),
            _ => bail!("there is no command {name}; /help lists them"),
        }
    }

    fn show(&self, name: &str) -> Result<()> {
        let key = find(name).map_err(anyhow::Error::msg)?;
        let value = (key.get)(&self.knobs);
        output::line(format!("{name:<20} {value:<12} {}", key.help))
    }

    /// Writes the conversation as a list of messages, the form that chat APIs take.
    fn save(&self, file: &Path) -> Result<()> {
        let system = self.knobs.system.iter().map(|text| Message::new("system", text.as_str()));
        let messages: Vec<Value> = system
            .chain(self.messages.iter().cloned())
            .map(|message| Value::Object(message.fields().clone()))
            .collect();
        let text = serde_json::to_string_pretty(&messages)?;
        fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
        report::note(&format!("{} messages are in {}", messages.len(), file.display()));
        Ok(())
    }

    fn load(&mut self, file: &Path) -> Result<()> {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let values: Vec<Value> =
            serde_json::from_str(&text).with_context(|| format!("{name} is no JSON list of messages"))?;
        let messages = values.into_iter().enumerate().map(|(index, value)| Message::from_json(index, value));
        let mut messages: Vec<Message> =
            messages.collect::<Result<_, _>>().with_context(|| name.to_string())?;
        check(&messages).map_err(anyhow::Error::msg).with_context(|| name.to_string())?;
        let system = messages.first().filter(|first| first.role() == "system");
        self.knobs.system = system.and_then(|m| Some(m.fields().get("content")?.as_str()?.to_owned()));
        if self.knobs.system.is_some() {
            messages.remove(0);
        }
        self.messages = messages;
        report::note(&format!("{} messages from {name}", self.messages.len()));
        Ok(())
    }
}

/// Which roles may follow a role; the empty one is the beginning.
const FOLLOWERS: &[(&str, &[&str])] = &[
    ("", &["system", "user"]),
    ("system", &["user"]),
    ("user", &["assistant"]),
    ("assistant", &["user", "tool"]),
    ("tool", &["tool", "assistant"]),
];

/// Checks that messages are a conversation that a new question can follow.
fn check(messages: &[Message]) -> Result<(), String> {
    let mut before = "";
    for (index, message) in messages.iter().enumerate() {
        let (role, place) = (message.role(), format!("message {}", index + 1));
        if !FOLLOWERS.iter().any(|(known, _)| *known == role && !role.is_empty()) {
            let known: Vec<&str> = FOLLOWERS.iter().map(|f| f.0).filter(|role| !role.is_empty()).collect();
            return Err(format!("{place}: the role {role:?} is none of {}", known.join(", ")));
        }
        let allowed = FOLLOWERS.iter().find(|(known, _)| *known == before).map_or(&[][..], |f| f.1);
        if !allowed.contains(&role) {
            let place_before =
                if before.is_empty() { "at the beginning".to_owned() } else { format!("after {before}") };
            let allowed = allowed.join(" or ");
            return Err(format!(
                "{place} is of the role {role}, where {place_before} only {allowed} can stand"
            ));
        }
        if matches!(role, "system" | "user") && !message.fields().get("content").is_some_and(Value::is_string)
        {
            return Err(format!("{place} ({role}) has no content, or it is no text"));
        }
        before = role;
    }
    match before {
        "user" | "tool" => Err(format!("it ends with a message of the role {before}, which has no answer")),
        _ => Ok(()),
    }
}

fn help() -> Result<()> {
    for (name, argument, what) in COMMANDS {
        output::line(format!("{:<22} {what}", format!("{name} {argument}")))?;
    }
    output::line(MORE_HELP)
}

/// A command and its argument; `None` if the text is a message. A path such as /etc/hosts is no command.
fn command(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let (name, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let word = name.strip_prefix('/')?;
    let plain = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
    plain.then_some((name, argument.trim()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use smelt_engine::chat::Message;

    use super::{check, command};

    #[test]
    fn only_conversations_are_loaded() {
        let of = |roles: &[&str]| {
            let messages: Vec<Message> = roles.iter().map(|role| Message::new(role, "x")).collect();
            check(&messages)
        };
        for good in
            [&[][..], &["system"], &["user", "assistant"], &["user", "assistant", "tool", "assistant"]]
        {
            assert_eq!(of(good), Ok(()), "{good:?}");
        }
        for (bad, message) in [
            (
                &["user", "robot"][..],
                "message 2: the role \"robot\" is none of system, user, assistant, tool",
            ),
            (
                &["assistant"],
                "message 1 is of the role assistant, where at the beginning only system or user",
            ),
            (
                &["user", "assistant", "system"],
                "message 3 is of the role system, where after assistant only user",
            ),
            (&["user", "user"], "message 2 is of the role user"),
            (&["user"], "it ends with a message of the role user"),
        ] {
            let error = of(bad).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
        let empty = Message::from_json(0, json!({"role": "user"})).unwrap();
        assert_eq!(check(&[empty]).unwrap_err(), "message 1 (user) has no content, or it is no text");
    }

    #[test]
    fn commands_are_told_from_messages() {
        assert_eq!(command("/set temperature 0.2"), Some(("/set", "temperature 0.2")));
        assert_eq!(command(" /bye "), Some(("/bye", "")));
        assert_eq!(command("/etc/hosts is what?"), None);
        assert_eq!(command("/ is the root"), None);
        assert_eq!(command("what is /help"), None);
    }
}
