//! The machine that reads an answer as it arrives.

use std::sync::Arc;

use super::Part;
use super::cursor::{Stop, undecided};
use super::formats::{CallFormat, ThinkTags, Trigger};
use super::syntax::Scan;
use super::tools::{ToolCall, ToolSet};

/// What an answer may hold beside content.
#[derive(Debug, Clone, Default)]
pub struct ReaderOptions {
    /// The marks around reasoning; `None` leaves them in the content.
    pub thinking: Option<&'static ThinkTags>,
    /// The prompt ends within a think block.
    pub thinking_is_open: bool,
    /// Reasoning is told as content, with its marks.
    pub thinking_is_content: bool,
    /// How calls are written, and of which tools; `None` leaves them in the content.
    pub calls: Option<(&'static CallFormat, Arc<ToolSet>)>,
    /// What a grammar sees to.
    pub held: Held,
    /// What follows the first call is left out.
    pub one_call: bool,
}

/// What a grammar sees to in what a model says behind its thoughts. Where it does so, a call is certain from its
/// [`Trigger`] on, and its arguments are told as they come; otherwise it is told when it is complete, since one that turns
/// out malformed remains text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    #[default]
    Free,
    /// What begins with a trigger is a call.
    Calls,
    /// It is calls, or content in which there are none.
    CallsOrContent,
    /// It is calls.
    OnlyCalls,
}

/// Characters of which every call has one at its end.
const ENDS: [char; 5] = ['}', ']', ')', '>', '`'];

/// A call is read from its beginning each time, but so many times on the average at most: the work is linear.
const MOST_READINGS: usize = 256;

/// Reads one answer.
#[derive(Debug, Clone)]
pub struct Reader {
    options: ReaderOptions,
    /// Texts from which on a call is certain.
    triggers: Arc<[Trigger]>,
    state: State,
    /// Text whose meaning is open, and how much of it is white space in front of a call.
    held: String,
    lead: usize,
    /// What was held when a call was last looked at, whether it may have ended since, and what was looked at in all.
    seen: usize,
    may_end: bool,
    looked: usize,
    /// Where in a call's arguments the text is, if they are told as they come.
    inside: Option<Inside>,
    /// White space that comes next is left out: it follows a think block or a call.
    skips_space: bool,
    /// No content was told yet, or none since the last call.
    is_first: bool,
    /// Of the call that is being read, what was told: calls, and bytes of the last one's arguments.
    told: (usize, usize),
    has_calls: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space came: a think block may begin.
    Begin,
    Thinking,
    Content,
    /// A call is being read, behind [`Reader::lead`].
    Call,
    /// Nothing more is told.
    Over,
}

impl Reader {
    /// A reader of an answer.
    #[must_use]
    pub fn new(options: ReaderOptions) -> Self {
        let state = match options.thinking {
            None => State::Content,
            Some(_) if options.thinking_is_open => State::Thinking,
            Some(_) => State::Begin,
        };
        let (held, skips_space) = (String::new(), state == State::Thinking && !options.thinking_is_content);
        let triggers = match &options.calls {
            Some((format, tools)) if options.held != Held::Free => format.triggers(tools),
            _ => Vec::new(),
        };
        Self {
            options,
            triggers: triggers.into(),
            state,
            held,
            lead: 0,
            seen: 0,
            may_end: true,
            looked: 0,
            inside: None,
            skips_space,
            is_first: true,
            told: (0, 0),
            has_calls: false,
        }
    }

    /// Takes more text, and tells what is certain by it.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        self.may_end |= text.contains(ENDS);
        self.run(false)
    }

    /// Tells the rest, since no more text comes.
    pub fn finish(&mut self) -> Vec<Part> {
        let is_certain = self.is_certain();
        // Behind a call, what was begun of a next one is nothing that the model says.
        let is_rest = match self.options.held {
            Held::Free => false,
            Held::Calls => self.state == State::Call && is_certain,
            Held::CallsOrContent | Held::OnlyCalls => matches!(self.state, State::Content | State::Call),
        };
        if is_rest && self.has_calls && self.told == (0, 0) {
            self.held.clear();
            self.state = State::Content;
        }
        let mut parts = Vec::new();
        if self.state == State::Call && is_certain {
            // What of a call that is cut off is there is told, however it came.
            self.seen = 0;
            parts = self.run(false);
        }
        for part in self.run(true) {
            tell(&mut parts, part);
        }
        parts
    }

    /// Whether what comes next belongs to a think block.
    #[must_use]
    pub fn is_thinking(&self) -> bool {
        self.state == State::Thinking
    }

    /// Whether nothing more is told, whatever comes: the only call that there may be was told.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether a call was told.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.has_calls
    }

    fn run(&mut self, ended: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        while match self.state {
            State::Begin => self.begin(ended, &mut parts),
            State::Thinking => self.think(ended, &mut parts),
            State::Content => self.content(ended, &mut parts),
            State::Call => self.call(ended, &mut parts),
            State::Over => {
                self.held.clear();
                false
            }
        } {}
        parts
    }

    fn begin(&mut self, ended: bool, parts: &mut Vec<Part>) -> bool {
        let Some(tags) = self.options.thinking else {
            self.state = State::Content;
            return true;
        };
        let text = self.held.trim_ascii_start();
        if let Some(rest) = text.strip_prefix(tags.open) {
            let opening = self.held.len() - rest.len();
            let opening: String = self.held.drain(..opening).collect();
            if self.options.thinking_is_content {
                tell(parts, Part::Content(opening));
            }
            self.state = State::Thinking;
            self.skips_space = !self.options.thinking_is_content;
        } else if !ended && tags.open.starts_with(text) {
            return false;
        } else {
            self.state = State::Content;
        }
        true
    }

    fn think(&mut self, ended: bool, parts: &mut Vec<Part>) -> bool {
        self.skip_space();
        let close = self.options.thinking.map_or("", |tags| tags.close);
        if self.options.thinking_is_content {
            let end = self.held.find(close).map(|at| at + close.len());
            let certain = if ended { self.held.len() } else { undecided(&self.held, [close]) };
            tell(parts, Part::Content(self.held.drain(..end.unwrap_or(certain)).collect()));
            if end.is_some() {
                self.state = State::Content;
            }
            return end.is_some();
        }
        if let Some(at) = self.held.find(close) {
            tell(parts, Part::Reasoning(self.held[..at].trim_end().to_owned()));
            self.held.drain(..at + close.len());
            self.state = State::Content;
            self.skips_space = true;
            return true;
        }
        let certain = if ended { self.held.trim_end().len() } else { undecided(&self.held, [close]) };
        tell(parts, Part::Reasoning(self.held.drain(..certain).collect()));
        false
    }

    fn content(&mut self, ended: bool, parts: &mut Vec<Part>) -> bool {
        self.skip_space();
        let Some((format, _)) = &self.options.calls else {
            tell(parts, Part::Content(std::mem::take(&mut self.held)));
            return false;
        };
        if self.is_first && (format.may_begin_unmarked() || self.options.held == Held::CallsOrContent) {
            let mut text = self.held.trim_ascii_start();
            if self.has_calls {
                text = text.strip_prefix([';', ',']).unwrap_or(text).trim_ascii_start();
            }
            self.lead = self.held.len() - text.len();
            let begins = match self.options.held {
                Held::CallsOrContent => self.triggers.iter().any(|trigger| text.starts_with(&trigger.text)),
                _ => text.starts_with(['{', '[']),
            };
            if begins {
                self.state = State::Call;
                return true;
            }
            // An opening mark may stand there still.
            if !ended
                && (text.is_empty() || self.triggers.iter().any(|trigger| trigger.text.starts_with(text)))
            {
                return false;
            }
        }
        if self.options.held == Held::CallsOrContent {
            self.say(self.held.len(), parts);
            return false;
        }
        let found = format.openings().filter_map(|mark| self.held.find(mark)).min();
        if let Some(at) = found {
            let certain = self.held[..at].trim_end().len();
            self.lead = at - certain;
            self.say(certain, parts);
            self.state = State::Call;
            return true;
        }
        let certain = if ended { self.held.len() } else { undecided(&self.held, format.openings()) };
        self.say(certain, parts);
        false
    }

    /// Whether what begins behind [`Reader::lead`] is a call for certain.
    fn is_certain(&self) -> bool {
        let call = self.held.get(self.lead..).unwrap_or_default();
        let begins =
            |trigger: &Trigger| call.starts_with(&trigger.text) && (self.is_first || !trigger.is_first);
        self.triggers.iter().any(begins)
    }

    fn call(&mut self, ended: bool, parts: &mut Vec<Part>) -> bool {
        let Some((format, tools)) = self.options.calls.clone() else { return false };
        if !ended && self.goes_on_inside(parts) {
            return false;
        }
        // A call is read from its beginning each time, so not with every token: where it may end, and now and then.
        let is_certain = self.is_certain();
        let is_due = self.may_end || is_certain;
        let is_cheap = self.looked <= MOST_READINGS * self.held.len();
        let may_wait = !ended && self.held.len() < 2 * self.seen;
        if may_wait && !(is_due && is_cheap) {
            return false;
        }
        (self.seen, self.may_end) = (self.held.len(), false);
        self.looked += self.held.len() - self.lead;
        let mut scan = Scan::new(&self.held[self.lead..], ended, format, &tools);
        let result = scan.run();
        let Scan { calls, open, is_open_verbatim, .. } = scan;
        match result {
            Ok(length) => {
                self.tell_calls(&calls, parts);
                self.held.drain(..self.lead + length);
                (self.told, self.skips_space, self.is_first) = ((0, 0), true, true);
                (self.seen, self.may_end, self.looked) = (0, true, 0);
                let is_over = self.options.one_call;
                self.state = if is_over { State::Over } else { State::Content };
                true
            }
            Err(Stop::More) => {
                if is_certain {
                    self.tell_calls(&calls, parts);
                    let verbatim = open.as_ref().filter(|_| is_open_verbatim);
                    let begin = verbatim.map(|open| self.held.len() - open.arguments.len());
                    self.tell_open(open, parts);
                    self.inside = begin.filter(|_| self.told.1 > 0).map(|at| Inside {
                        begin: at,
                        at,
                        ..Inside::default()
                    });
                }
                false
            }
            // What was told can't be taken back: it has ended too early, and its end is text.
            Err(Stop::Wrong) if self.told != (0, 0) => {
                self.tell_calls(&calls, parts);
                self.tell_open(open, parts);
                self.held.clear();
                self.state = State::Over;
                true
            }
            Err(Stop::Wrong) => {
                let first = self.held[self.lead..].chars().next().map_or(0, char::len_utf8);
                self.state = State::Content;
                (self.seen, self.may_end, self.looked) = (0, true, 0);
                self.say(self.lead + first, parts);
                true
            }
        }
    }

    /// Tells more of the arguments of a call that is certain, if the text doesn't lead out of them.
    fn goes_on_inside(&mut self, parts: &mut Vec<Part>) -> bool {
        let Some(mut inside) = self.inside.take() else { return false };
        if inside.ends(&self.held) {
            return false;
        }
        // What was told of them ends where the last text did.
        let told = inside.begin + self.told.1;
        tell(parts, Part::Arguments(self.held[told..].to_owned()));
        self.told.1 = self.held.len() - inside.begin;
        self.inside = Some(inside);
        true
    }

    /// Tells what of complete calls was not told yet.
    fn tell_calls(&mut self, calls: &[ToolCall], parts: &mut Vec<Part>) {
        for call in calls.iter().skip(self.told.0) {
            if self.options.one_call && self.told.0 > 0 {
                return;
            }
            self.tell_open(Some(call.clone()), parts);
            self.told = (self.told.0 + 1, 0);
        }
    }

    /// Tells what of a call was not told yet.
    fn tell_open(&mut self, call: Option<ToolCall>, parts: &mut Vec<Part>) {
        let Some(ToolCall { name, arguments }) = call else { return };
        if self.options.one_call && self.told.0 > 0 {
            return;
        }
        if self.told.1 == 0 {
            parts.push(Part::Call(name));
            self.has_calls = true;
        }
        // It begins with what was told: where a grammar holds calls, no argument comes twice.
        tell(parts, Part::Arguments(arguments.get(self.told.1..).unwrap_or_default().to_owned()));
        self.told.1 = arguments.len();
    }

    /// Tells the first bytes of what is held as content.
    fn say(&mut self, bytes: usize, parts: &mut Vec<Part>) {
        if bytes > 0 {
            self.is_first = false;
        }
        tell(parts, Part::Content(self.held[..bytes].to_owned()));
        self.held.drain(..bytes);
    }

    fn skip_space(&mut self) {
        if self.skips_space {
            let space = self.held.len() - self.held.trim_ascii_start().len();
            self.held.drain(..space);
            self.skips_space = self.held.is_empty();
        }
    }
}

/// A place in an object of JSON.
#[derive(Debug, Clone, Copy, Default)]
struct Inside {
    /// Where the object begins, and up to where it was followed.
    begin: usize,
    at: usize,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl Inside {
    /// Follows the object through more text. Whether it ends there.
    fn ends(&mut self, text: &str) -> bool {
        for byte in &text.as_bytes()[self.at..] {
            self.at += 1;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => continue,
            }
            if self.depth == 0 {
                return true;
            }
        }
        false
    }
}

/// Adds a part; what is like the last one goes on with it.
fn tell(parts: &mut Vec<Part>, part: Part) {
    match (parts.last_mut(), part) {
        (_, Part::Reasoning(text) | Part::Content(text) | Part::Arguments(text)) if text.is_empty() => {}
        (Some(Part::Reasoning(last)), Part::Reasoning(text))
        | (Some(Part::Content(last)), Part::Content(text))
        | (Some(Part::Arguments(last)), Part::Arguments(text)) => last.push_str(&text),
        (_, part) => parts.push(part),
    }
}
