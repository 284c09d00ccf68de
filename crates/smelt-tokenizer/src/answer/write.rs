//! Calls as a family writes them.

use serde_json::{Map, Value};

use super::formats::{CallFormat, Syntax, Tags, head};

/// A tool's name and the arguments that it is called with.
type Call<'a> = (&'a str, &'a Map<String, Value>);

impl CallFormat {
    /// The text of some calls: what the model would have said, or is shown as an example.
    #[must_use]
    pub fn write(&self, calls: &[Call<'_>]) -> String {
        let gap = self.gap;
        let (open, close) = self.written_marks();
        let marked = |body: String| match (open, close) {
            ("", "") => body,
            (_, "") => format!("{open}{body}"),
            _ => format!("{open}{gap}{body}{gap}{close}"),
        };
        let bodies = calls.iter().map(|call| self.syntaxes[0].write(*call));
        let calls = match self.syntaxes[0] {
            Syntax::Json { list: true, .. } | Syntax::Python => {
                marked(format!("[{}]", bodies.collect::<Vec<_>>().join(", ")))
            }
            _ => bodies.map(marked).collect::<Vec<_>>().join(gap),
        };
        match self.section {
            ("", _) => calls,
            (open, close) => format!("{open}{gap}{calls}{gap}{close}"),
        }
    }
}

impl Syntax {
    fn write(&self, (name, arguments): Call<'_>) -> String {
        let members = |assign: &str, between: &str, write: &dyn Fn(&Value) -> String| {
            let pairs = arguments.iter().map(|(key, value)| format!("{key}{assign}{}", write(value)));
            pairs.collect::<Vec<_>>().join(between)
        };
        let object = Value::Object(arguments.clone());
        match self {
            Self::Json { keys, .. } => format!("{}{object}}}", head(*keys, name)),
            Self::Named { before, id: _, between, after } => {
                format!("{before}{name}{between}{object}{after}")
            }
            Self::Tagged(Tags { name: around, key, kinds, value, end }) => {
                let tag = |(k, v): (&String, &Value)| {
                    let (kind, text) = match v.as_str() {
                        Some(text) => (kinds.0, text.to_owned()),
                        None => (kinds.1, v.to_string()),
                    };
                    [key.0, k, key.1, kind, value.0, &text, value.1, "\n"].concat()
                };
                let tags: String = arguments.iter().map(tag).collect();
                format!("{}{name}{}\n{tags}{end}", around.0, around.1)
            }
            // JSON's words for true, false and null are understood as well as Python's.
            Self::Python => format!("{name}({})", members("=", ", ", &Value::to_string)),
            Self::Braces { quotes } => {
                format!("call:{name}{{{}}}", members(":", ",", &|v| braced(v, quotes[0])))
            }
        }
    }
}

/// A value in Gemma's notation.
fn braced(value: &Value, quote: &str) -> String {
    let list = |items: Vec<String>| items.join(",");
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(items) => format!("[{}]", list(items.iter().map(|item| braced(item, quote)).collect())),
        Value::Object(members) => {
            let pairs = members.iter().map(|(key, value)| format!("{key}:{}", braced(value, quote)));
            format!("{{{}}}", list(pairs.collect()))
        }
        plain => plain.to_string(),
    }
}
