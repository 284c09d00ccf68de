//! The families' marks, as data. A new family is a line here.

use serde::{Deserialize, Serialize};

use super::tools::ToolSet;

/// How a family of models writes calls of tools.
#[derive(Debug)]
pub struct CallFormat {
    /// The family's name.
    pub name: &'static str,
    /// What the source of a template in this format contains: all texts of one of these groups.
    pub(super) signs: &'static [&'static [&'static str]],
    /// The marks around all calls of an answer; empty where there are none.
    pub(super) section: Marks,
    /// The marks around each call; empty where there are none. A closing mark may be missing where the text ends.
    pub(super) call: Marks,
    /// Where a call may stand without its opening mark.
    pub(super) unmarked: Unmarked,
    /// The notations of what is between the marks; their first characters tell them apart.
    pub(super) syntaxes: &'static [Syntax],
    /// White space that the family writes within its marks and between calls.
    pub(super) gap: &'static str,
}

/// A text with which a call surely begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// It.
    pub text: String,
    /// It only counts where the answer begins, or behind another call.
    pub is_first: bool,
}

/// An opening and a closing mark.
pub(super) type Marks = (&'static str, &'static str);

/// Where a call may stand without its opening mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unmarked {
    Never,
    /// Where the answer begins, or behind another call: the model has no mark, or forgets it.
    First,
    /// Anywhere, since it begins with this text.
    With(&'static str),
}

/// A notation of calls.
#[derive(Debug)]
pub(super) enum Syntax {
    /// `{"name": …, "arguments": {…}}`, or `{NAME: {…}}` where the keys are empty; a list of such objects, or several in a row. `list` and `keys` are the family's own
    /// way; every other one is read too.
    Json { keys: (&'static str, &'static str), list: bool },
    /// The name between texts, then the arguments as JSON: `before NAME … between {…} after`. What stands between the
    /// name and `between` is skipped; `id`, a text and a regular expression, is what the family writes there, if anything.
    Named { before: &'static str, id: Marks, between: &'static str, after: &'static str },
    /// The name and each argument in tags of their own.
    Tagged(Tags),
    /// `NAME(KEY=VALUE, …)`, or a list of such, with Python's literals; `.call` may stand behind the name.
    Python,
    /// `call:NAME{KEY:VALUE, …}` with strings between these quotes, of which the first is the family's own.
    Braces { quotes: &'static [&'static str] },
}

/// The texts around a name, around each key and around each value. An empty text is not there.
#[derive(Debug)]
pub(super) struct Tags {
    pub(super) name: Marks,
    pub(super) key: Marks,
    /// What stands behind a key whose value is text, and behind any other.
    pub(super) kinds: (&'static str, &'static str),
    pub(super) value: Marks,
    pub(super) end: &'static str,
}

pub(super) const NONE: Marks = ("", "");
/// The tags of Qwen3-Coder, which others took over.
const FUNCTION: Syntax = Syntax::Tagged(Tags {
    name: ("<function=", ">"),
    key: ("<parameter=", ">"),
    kinds: NONE,
    value: ("", "</parameter>"),
    end: "</function>",
});

const JSON: Syntax = Syntax::Json { keys: ("name", "arguments"), list: false };
const JSON_LIST: Syntax = Syntax::Json { keys: ("name", "arguments"), list: true };

const BASE: CallFormat = CallFormat {
    name: "",
    signs: &[],
    section: NONE,
    call: NONE,
    unmarked: Unmarked::Never,
    syntaxes: &[JSON],
    gap: "",
};

/// Every format, the more particular before the more general; the last one is for templates that show none, whose
/// models are told of it in words.
pub static FORMATS: &[CallFormat] = &[
    CallFormat {
        name: "deepseek-dsml",
        signs: &[&["｜DSML｜", "function_calls"]],
        section: ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
        syntaxes: &[DSML],
        ..BASE
    },
    CallFormat {
        name: "deepseek-dsml-v4",
        signs: &[&["｜DSML｜"]],
        section: ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
        syntaxes: &[DSML],
        ..BASE
    },
    CallFormat {
        name: "deepseek-r1",
        signs: &[&["<｜tool▁calls▁begin｜>", "```json"]],
        section: ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        call: ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        syntaxes: &[Syntax::Named {
            before: "function<｜tool▁sep｜>",
            id: NONE,
            between: "\n```json\n",
            after: "\n```",
        }],
        ..BASE
    },
    CallFormat {
        name: "deepseek-v3.1",
        signs: &[&["<｜tool▁calls▁begin｜>"]],
        section: ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        call: ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        syntaxes: &[Syntax::Named { before: "", id: NONE, between: "<｜tool▁sep｜>", after: "" }],
        ..BASE
    },
    CallFormat {
        name: "kimi",
        signs: &[&["<|tool_call_argument_begin|>"]],
        section: ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        call: ("<|tool_call_begin|>", "<|tool_call_end|>"),
        syntaxes: &[Syntax::Named {
            before: "functions.",
            id: (":", "[0-9]{1,4}"),
            between: "<|tool_call_argument_begin|>",
            after: "",
        }],
        ..BASE
    },
    CallFormat {
        name: "minimax",
        signs: &[&["<minimax:tool_call>"]],
        section: ("<minimax:tool_call>", "</minimax:tool_call>"),
        syntaxes: &[Syntax::Tagged(Tags {
            name: ("<invoke name=\"", "\">"),
            key: ("<parameter name=\"", "\">"),
            kinds: NONE,
            value: ("", "</parameter>"),
            end: "</invoke>",
        })],
        gap: "\n",
        ..BASE
    },
    CallFormat {
        name: "seed",
        signs: &[&["<seed:tool_call>"]],
        call: ("<seed:tool_call>", "</seed:tool_call>"),
        syntaxes: &[FUNCTION],
        gap: "\n",
        ..BASE
    },
    CallFormat {
        name: "glm",
        signs: &[&["<tool_call>", "<arg_key>"]],
        call: ("<tool_call>", "</tool_call>"),
        syntaxes: &[Syntax::Tagged(Tags {
            name: NONE,
            key: ("<arg_key>", "</arg_key>"),
            kinds: NONE,
            value: ("<arg_value>", "</arg_value>"),
            end: "",
        })],
        gap: "\n",
        ..BASE
    },
    CallFormat {
        name: "qwen-xml",
        signs: &[&["<tool_call>", "<function="]],
        call: ("<tool_call>", "</tool_call>"),
        unmarked: Unmarked::With("<function="),
        syntaxes: &[FUNCTION, JSON],
        gap: "\n",
        ..BASE
    },
    CallFormat {
        name: "minicpm",
        signs: &[&["<function name=", "<param name="]],
        unmarked: Unmarked::With("<function name="),
        syntaxes: &[Syntax::Tagged(Tags {
            name: ("<function name=\"", "\">"),
            key: ("<param name=\"", "\">"),
            kinds: NONE,
            value: ("", "</param>"),
            end: "</function>",
        })],
        ..BASE
    },
    CallFormat {
        name: "functionary",
        signs: &[&["<function=", "</function>"], &["{start_tag}={function_name}"]],
        unmarked: Unmarked::With("<function="),
        syntaxes: &[Syntax::Named { before: "<function=", id: NONE, between: ">", after: "</function>" }],
        ..BASE
    },
    CallFormat {
        name: "nemotron",
        signs: &[&["<TOOLCALL>"]],
        call: ("<TOOLCALL>", "</TOOLCALL>"),
        syntaxes: &[JSON_LIST],
        ..BASE
    },
    CallFormat {
        name: "tool-calls-json",
        signs: &[&["<tool_calls>"]],
        call: ("<tool_calls>", "</tool_calls>"),
        gap: "\n",
        ..BASE
    },
    HERMES,
    CallFormat {
        name: "mistral-args",
        signs: &[&["[TOOL_CALLS]", "[ARGS]"]],
        call: ("[TOOL_CALLS]", ""),
        syntaxes: &[
            Syntax::Named { before: "", id: ("[CALL_ID]", "[0-9A-Za-z]{9}"), between: "[ARGS]", after: "" },
            JSON_LIST,
        ],
        ..BASE
    },
    CallFormat {
        name: "mistral",
        signs: &[&["[TOOL_CALLS]"]],
        call: ("[TOOL_CALLS]", ""),
        syntaxes: &[JSON_LIST],
        ..BASE
    },
    CallFormat {
        name: "gemma4",
        signs: &[&["<|tool_call>"]],
        call: ("<|tool_call>", "<tool_call|>"),
        syntaxes: &[Syntax::Braces { quotes: &["<|\"|>", "\""] }],
        ..BASE
    },
    CallFormat {
        name: "functiongemma",
        signs: &[&["<start_function_call>"]],
        call: ("<start_function_call>", "<end_function_call>"),
        syntaxes: &[Syntax::Braces { quotes: &["<escape>", "\""] }],
        ..BASE
    },
    CallFormat {
        name: "lfm2",
        signs: &[&["<|tool_call_start|>"], &["<|tool_list_start|>"], &["List of tools: ["]],
        call: ("<|tool_call_start|>", "<|tool_call_end|>"),
        syntaxes: &[Syntax::Python, JSON],
        ..BASE
    },
    CallFormat {
        name: "phi",
        signs: &[&["<|tool|>", "<|/tool|>"]],
        call: ("<|tool_call|>", "<|/tool_call|>"),
        syntaxes: &[JSON_LIST],
        ..BASE
    },
    CallFormat {
        name: "granite",
        signs: &[&["<|tool_call|>"]],
        call: ("<|tool_call|>", ""),
        syntaxes: &[JSON_LIST],
        ..BASE
    },
    CallFormat {
        name: "command-r",
        signs: &[&["<|START_ACTION|>"]],
        call: ("<|START_ACTION|>", "<|END_ACTION|>"),
        syntaxes: &[Syntax::Json { keys: ("tool_name", "parameters"), list: true }],
        ..BASE
    },
    CallFormat {
        name: "apertus",
        signs: &[&["<|tools_prefix|>"]],
        call: ("<|tools_prefix|>", "<|tools_suffix|>"),
        syntaxes: &[Syntax::Json { keys: ("", ""), list: true }],
        ..BASE
    },
    CallFormat {
        name: "gigachat3.1",
        signs: &[&["<|function_call|>"]],
        call: ("<|function_call|>", ""),
        ..BASE
    },
    CallFormat {
        name: "functools",
        signs: &[&["functools["]],
        call: ("functools", ""),
        syntaxes: &[JSON_LIST],
        ..BASE
    },
    CallFormat {
        name: "llama3",
        signs: &[&["<|python_tag|>"], &["Respond in the format {\"name\": function name, \"parameters\":"]],
        call: ("<|python_tag|>", ""),
        unmarked: Unmarked::First,
        syntaxes: &[Syntax::Json { keys: ("name", "parameters"), list: false }, Syntax::Python],
        ..BASE
    },
    CallFormat { name: "generic", signs: &[&[]], ..HERMES },
];

const HERMES: CallFormat = CallFormat {
    name: "hermes",
    signs: &[&["<tool_call>"]],
    call: ("<tool_call>", "</tool_call>"),
    gap: "\n",
    ..BASE
};

const DSML: Syntax = Syntax::Tagged(Tags {
    name: ("<｜DSML｜invoke name=\"", "\">"),
    key: ("<｜DSML｜parameter name=\"", "\""),
    kinds: (" string=\"true\"", " string=\"false\""),
    value: (">", "</｜DSML｜parameter>"),
    end: "</｜DSML｜invoke>",
});

impl CallFormat {
    /// The format in which a model with this template writes its calls.
    #[must_use]
    pub fn of_template(source: &str) -> &'static Self {
        let has = |group: &&[&str]| group.iter().all(|sign| source.contains(sign));
        FORMATS.iter().find(|format| format.signs.iter().any(has)).unwrap_or(&FORMATS[FORMATS.len() - 1])
    }

    /// What the source of a template in this format contains: all texts of one of these groups.
    #[must_use]
    pub fn signs(&self) -> &'static [&'static [&'static str]] {
        self.signs
    }

    /// The texts with which a call, or the section of all calls, may begin.
    pub(super) fn openings(&self) -> impl Iterator<Item = &'static str> {
        let unmarked = match self.unmarked {
            Unmarked::With(text) => text,
            Unmarked::Never | Unmarked::First => "",
        };
        [self.mark(), unmarked].into_iter().filter(|text| !text.is_empty())
    }

    /// The mark in front of a call or of the section of all calls; empty where there is none.
    pub(super) fn mark(&self) -> &'static str {
        if self.section.0.is_empty() { self.call.0 } else { self.section.0 }
    }

    /// Every text with which a call of these tools surely begins: where a grammar sees to it, what follows one is a call.
    #[must_use]
    pub fn triggers(&self, tools: &ToolSet) -> Vec<Trigger> {
        let marks = self.openings().map(|text| Trigger { text: text.to_owned(), is_first: false });
        let heads = tools.tools().iter().filter_map(|tool| match self.syntaxes[0] {
            Syntax::Json { keys, .. } if self.may_begin_unmarked() => {
                Some(Trigger { text: head(keys, &tool.name), is_first: true })
            }
            _ => None,
        });
        marks.chain(heads).collect()
    }

    /// Whether a call may stand without its mark where the answer begins.
    pub(super) fn may_begin_unmarked(&self) -> bool {
        self.unmarked == Unmarked::First
    }

    /// The marks that the family writes around a call: where a call may do without, none.
    pub(super) fn written_marks(&self) -> Marks {
        if self.may_begin_unmarked() { NONE } else { self.call }
    }

    /// Whether this text is one of the format's marks, or a part of one: a token of it must be seen to be read.
    #[must_use]
    pub fn has_mark(&self, text: &str) -> bool {
        let ends = [self.section.0, self.section.1, self.call.0, self.call.1];
        !text.is_empty()
            && (ends.iter().any(|mark| mark.contains(text)) || self.syntaxes.iter().any(|s| s.has_mark(text)))
    }
}

/// What stands in front of the arguments of a call in JSON.
pub(super) fn head((name_key, arguments_key): (&str, &str), name: &str) -> String {
    match name_key {
        "" => format!("{{\"{name}\": "),
        _ => format!("{{\"{name_key}\": \"{name}\", \"{arguments_key}\": "),
    }
}

impl Syntax {
    fn has_mark(&self, text: &str) -> bool {
        match self {
            Self::Json { .. } | Self::Python => false,
            Self::Named { before, id, between, after } => {
                [before, &id.0, between, after].iter().any(|t| t.contains(text))
            }
            Self::Tagged(Tags { name, key, kinds: _, value, end }) => {
                [name.0, name.1, key.0, key.1, value.0, value.1, end].iter().any(|t| t.contains(text))
            }
            Self::Braces { quotes } => quotes.iter().any(|quote| quote.contains(text)),
        }
    }
}

/// The marks around what a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinkTags {
    /// In front of it; a template's prompt may end with this.
    pub open: &'static str,
    /// Behind it.
    pub close: &'static str,
}

/// Every pair of marks. A template that mentions the closing one has it.
pub static THINKING: &[ThinkTags] = &[
    ThinkTags { open: "<think>", close: "</think>" },
    ThinkTags { open: "[THINK]", close: "[/THINK]" },
    ThinkTags { open: "<seed:think>", close: "</seed:think>" },
    ThinkTags { open: "<|channel>thought\n", close: "<channel|>" },
    ThinkTags { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
    ThinkTags { open: "<|inner_prefix|>", close: "<|inner_suffix|>" },
];

impl ThinkTags {
    /// The marks of a model with this template, if it thinks.
    #[must_use]
    pub fn of_template(source: &str) -> Option<&'static Self> {
        THINKING.iter().find(|tags| source.contains(tags.close))
    }

    /// Whether a prompt ends within a think block that it opened.
    #[must_use]
    pub fn is_open(&self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.open.trim_end())
    }

    /// Whether this text is one of the marks, or a part of one.
    #[must_use]
    pub fn has_mark(&self, text: &str) -> bool {
        !text.is_empty() && (self.open.contains(text) || self.close.contains(text))
    }
}
