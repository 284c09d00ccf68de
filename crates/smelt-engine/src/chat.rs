//! Messages to a prompt that fits the context.

use crate::{Error, Model};
pub use smelt_tokenizer::chat::{Message, RenderOptions};

/// What to do with a conversation that doesn't fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Keep the head (system messages) and the latest turns; leave out whole turns in between.
    DropOldest,
    /// Refuse.
    Refuse,
}

/// A prompt and what was left out to make it fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The prompt's tokens.
    pub tokens: Vec<u32>,
    /// Messages left out.
    pub dropped_messages: usize,
    /// Tokens of the prompt as it would have been.
    pub full_tokens: usize,
}

impl Model {
    /// Renders and tokenizes a conversation: what a user wrote can never become a control token.
    ///
    /// # Errors
    /// If the template refuses it.
    pub fn encode_chat(&self, messages: &[Message], options: &RenderOptions) -> Result<Vec<u32>, Error> {
        let rendered =
            self.template()?.render(messages, options).map_err(|source| self.template_error(source))?;
        Ok(self.tokenizer.encode_rendered(&rendered))
    }

    /// A conversation's prompt, with `reserve` tokens of the context left for the answer.
    ///
    /// Whole turns go: a turn begins at a user's message, so that no answer stands without its question.
    ///
    /// # Errors
    /// [`Error::ContextExceeded`] if it doesn't fit and may not be cut, or if even the last turn alone is too long.
    pub fn fit_chat(
        &self,
        messages: &[Message],
        options: &RenderOptions,
        reserve: usize,
        overflow: Overflow,
    ) -> Result<Fitted, Error> {
        let context = self.facts().context;
        let room = context.saturating_sub(reserve);
        let tokens = self.encode_chat(messages, options)?;
        let full_tokens = tokens.len();
        let too_long = |prompt| Err(Error::ContextExceeded { prompt, reserve, context });
        if full_tokens <= room {
            return Ok(Fitted { tokens, dropped_messages: 0, full_tokens });
        }
        if overflow == Overflow::Refuse {
            return too_long(full_tokens);
        }
        let head = messages.iter().take_while(|m| matches!(m.role(), "system" | "developer")).count();
        let starts: Vec<usize> =
            (head + 1..messages.len()).filter(|i| messages[*i].role() == "user").collect();
        // The fewer turns stay the shorter it is, so the longest fitting tail is found by bisection.
        let tail = |start: usize| [&messages[..head], &messages[start..]].concat();
        let (mut low, mut high) = (0, starts.len());
        let mut best = None;
        while low < high {
            let middle = usize::midpoint(low, high);
            let tokens = self.encode_chat(&tail(starts[middle]), options)?;
            if tokens.len() <= room {
                best = Some(Fitted { tokens, dropped_messages: starts[middle] - head, full_tokens });
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        best.map_or_else(|| too_long(full_tokens), Ok)
    }

    /// A raw prompt that fits: BOS and the latest tokens.
    ///
    /// # Errors
    /// [`Error::ContextExceeded`] if it doesn't fit and may not be cut.
    pub fn fit_tokens(
        &self,
        mut tokens: Vec<u32>,
        reserve: usize,
        overflow: Overflow,
    ) -> Result<Fitted, Error> {
        let context = self.facts().context;
        let room = context.saturating_sub(reserve).max(1);
        let full_tokens = tokens.len();
        if full_tokens <= room {
            return Ok(Fitted { tokens, dropped_messages: 0, full_tokens });
        }
        if overflow == Overflow::Refuse {
            return Err(Error::ContextExceeded { prompt: full_tokens, reserve, context });
        }
        let head = usize::from(tokens.first().copied() == self.tokenizer().bos() && room > 1);
        tokens.drain(head..head + full_tokens - room);
        Ok(Fitted { tokens, dropped_messages: 0, full_tokens })
    }
}
