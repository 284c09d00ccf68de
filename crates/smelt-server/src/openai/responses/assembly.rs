//! The items of a response, put together from an answer's parts. Streamed or not, this is how they come about.

use smelt_api::openai::ChatLogprob;
use smelt_api::responses::{Event, Item, Part, Status};
use smelt_engine::TokenInfo;
use smelt_engine::tokenizer::answer::Part as Read;

use super::super::chat_logprob;
use crate::conversation::call_id;

/// Every message, and all reasoning, has one part.
const ONLY: usize = 0;

/// What is told beside what everybody gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extras {
    pub(super) logprobs: bool,
    /// Reasoning as `encrypted_content` too.
    pub(super) encrypted_reasoning: bool,
}

/// The items of a response. All but the last are complete.
pub(super) struct Assembly {
    items: Vec<Item>,
    /// Whether the last item goes on.
    is_open: bool,
    /// What the items' ids end with.
    id: String,
    extras: Extras,
    /// Tokens whose text was not told yet.
    tokens: Vec<TokenInfo>,
}

impl Assembly {
    pub(super) fn new(id: &str, extras: Extras) -> Self {
        Self { items: Vec::new(), is_open: false, id: id.to_owned(), extras, tokens: Vec::new() }
    }

    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Adds more of an answer, and the tokens whose text is out.
    pub(super) fn take(&mut self, parts: Vec<Read>, tokens: Vec<TokenInfo>) -> Vec<Event> {
        if self.extras.logprobs {
            self.tokens.extend(tokens);
        }
        let mut events = Vec::new();
        let last_text = parts.iter().rposition(|part| matches!(part, Read::Content(_)));
        let is_said = !parts.is_empty();
        for (i, part) in parts.into_iter().enumerate() {
            // A delta's tokens belong to what it says last; those of marks, thoughts and calls have no place.
            let logprobs = if Some(i) == last_text { self.logprobs() } else { Vec::new() };
            self.add(part, logprobs, &mut events);
        }
        if is_said {
            self.tokens.clear();
        }
        events
    }

    /// Ends the item that goes on; a response that has none gets an empty message.
    pub(super) fn finish(&mut self, status: Status) -> Vec<Event> {
        let mut events = Vec::new();
        if self.items.is_empty() && status != Status::Failed {
            self.begin(self.message(), &mut events);
        }
        let rest = self.logprobs();
        if let Some(Item::Message { content, .. }) = self.items.last_mut().filter(|_| self.is_open)
            && let Some(Part::OutputText { logprobs, .. }) = content.first_mut()
        {
            logprobs.extend(rest);
        }
        // An item itself does not fail.
        let status = if status == Status::Failed { Status::Incomplete } else { status };
        self.close(status, &mut events);
        events
    }

    fn logprobs(&mut self) -> Vec<ChatLogprob> {
        self.tokens.drain(..).map(|token| chat_logprob(&token)).collect()
    }

    fn add(&mut self, part: Read, new_logprobs: Vec<ChatLogprob>, events: &mut Vec<Event>) {
        let open = self.items.last().filter(|_| self.is_open);
        let goes_on = match (&part, open) {
            (Read::Content(_), Some(Item::Message { .. }))
            | (Read::Reasoning(_), Some(Item::Reasoning { .. }))
            | (Read::Arguments(_), Some(Item::FunctionCall { .. })) => true,
            (_, _) => false,
        };
        if !goes_on {
            let item = match &part {
                Read::Content(_) => self.message(),
                Read::Reasoning(_) => self.reasoning(),
                Read::Call(name) => self.call(name.clone()),
                // Arguments always follow their call.
                Read::Arguments(_) => return,
            };
            self.begin(item, events);
        }
        let output_index = self.items.len() - 1;
        let Some(item) = self.items.last_mut() else { return };
        let item_id = item.id().to_owned();
        match (part, item) {
            (Read::Content(delta), Item::Message { content, .. }) => {
                if let Some(Part::OutputText { text, logprobs, .. }) = content.first_mut() {
                    text.push_str(&delta);
                    logprobs.extend(new_logprobs.iter().cloned());
                }
                let (content_index, logprobs) = (ONLY, new_logprobs);
                events.push(Event::TextDelta { item_id, output_index, content_index, delta, logprobs });
            }
            (Read::Reasoning(delta), Item::Reasoning { content, .. }) => {
                if let Some(Part::ReasoningText { text }) = content.first_mut() {
                    text.push_str(&delta);
                }
                events.push(Event::ReasoningDelta { item_id, output_index, content_index: ONLY, delta });
            }
            (Read::Arguments(delta), Item::FunctionCall { arguments, .. }) => {
                arguments.push_str(&delta);
                events.push(Event::ArgumentsDelta { item_id, output_index, delta });
            }
            _ => {}
        }
    }

    /// The id of the next item.
    fn id(&self, prefix: &str) -> String {
        format!("{prefix}{}out{}", self.id, self.items.len())
    }

    fn message(&self) -> Item {
        let content = vec![Part::OutputText { text: String::new(), annotations: [], logprobs: Vec::new() }];
        Item::Message { id: self.id("msg_"), status: Status::InProgress, role: "assistant", content }
    }

    fn reasoning(&self) -> Item {
        let content = vec![Part::ReasoningText { text: String::new() }];
        let (id, status) = (self.id("rs_"), Status::InProgress);
        Item::Reasoning { id, status, summary: [], content, encrypted_content: None }
    }

    fn call(&self, name: String) -> Item {
        let (id, status, arguments) = (self.id("fc_"), Status::InProgress, String::new());
        Item::FunctionCall { id, status, call_id: call_id("call_"), name, arguments }
    }

    /// Begins an item. It is told without its content first.
    fn begin(&mut self, item: Item, events: &mut Vec<Event>) {
        self.close(Status::Completed, events);
        let (output_index, item_id) = (self.items.len(), item.id().to_owned());
        let mut bare = item.clone();
        let part = match &mut bare {
            Item::Message { content, .. } | Item::Reasoning { content, .. } => content.pop(),
            Item::FunctionCall { .. } => None,
        };
        events.push(Event::ItemAdded { output_index, item: bare });
        if let Some(part) = part {
            events.push(Event::PartAdded { item_id, output_index, content_index: ONLY, part });
        }
        self.items.push(item);
        self.is_open = true;
    }

    fn close(&mut self, status: Status, events: &mut Vec<Event>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let output_index = self.items.len() - 1;
        let encrypted_reasoning = self.extras.encrypted_reasoning;
        let Some(item) = self.items.last_mut() else { return };
        *item.status_mut() = status;
        let (item_id, content_index) = (item.id().to_owned(), ONLY);
        match item {
            Item::Message { content, .. } | Item::Reasoning { content, .. } => {
                let Some(part) = content.first().cloned() else { return };
                let id = item_id.clone();
                events.push(match part.clone() {
                    Part::OutputText { text, logprobs, .. } => {
                        Event::TextDone { item_id: id, output_index, content_index, text, logprobs }
                    }
                    Part::ReasoningText { text } => {
                        Event::ReasoningDone { item_id: id, output_index, content_index, text }
                    }
                });
                events.push(Event::PartDone { item_id, output_index, content_index, part });
            }
            Item::FunctionCall { name, arguments, .. } => {
                let (name, arguments) = (name.clone(), arguments.clone());
                events.push(Event::ArgumentsDone { item_id, output_index, name, arguments });
            }
        }
        if let Item::Reasoning { content, encrypted_content, .. } = item {
            // Nothing here is secret: clients that hand back only this hand back what was thought.
            *encrypted_content = match content.first() {
                Some(Part::ReasoningText { text }) if encrypted_reasoning => Some(text.clone()),
                _ => None,
            };
        }
        events.push(Event::ItemDone { output_index, item: item.clone() });
    }
}
