//! What clients ask, and how they behave: seeded, so that every server gets the same.

use std::time::Duration;

use serde_json::json;

/// How a client behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// Reads the answer to its end.
    Patient,
    /// Goes away after so many events.
    Leaving(u32),
    /// Waits before it reads on.
    Slow(Duration),
    /// Sends what no server can accept.
    Malformed,
    /// Announces a body and goes away in its midst.
    Half,
}

/// A request to send.
pub(super) struct Request {
    pub(super) manner: Manner,
    pub(super) body: Vec<u8>,
}

/// Bodies that must be refused as the client's fault.
static MALFORMED: &[&[u8]] = &[
    b"",
    b"{\"messages\": [{\"role\": \"us",
    b"\xff\xfe{}",
    b"[]",
    b"{\"stream\": true}",
    b"{\"stream\": true, \"messages\": 3}",
    b"{\"stream\": true, \"messages\": [{\"content\": \"no role\"}]}",
    b"{\"stream\": true, \"messages\": [{\"role\": \"user\", \"content\": 3}]}",
    b"{\"stream\": true, \"temperature\": \"hot\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}",
];

/// What the conversations are told first. Few, so that prompts share beginnings as those of an application do.
static SYSTEM: &[&str] = &[
    "You are a helpful assistant. Answer in plain words, and say so when you do not know.",
    "You are an editor of an encyclopaedia. You read passages of it and answer questions about them. Keep to the \
     passage; where it says nothing, say that it says nothing. Be brief.",
    "You translate, summarise and rewrite texts for readers of a newspaper. Keep names and numbers as they are, leave \
     out what a reader does not need, and write whole sentences.",
];

/// What is asked about a passage.
static QUESTIONS: &[&str] =
    &["Summarise this:", "Who is this about?", "Continue this text:", "List its facts:"];

/// Where the passages come from.
const TEXT: &str = include_str!("../../../tests/data/text/britannica11_shakespeare.txt");

/// The endless requests of one client in one slice.
pub(super) struct Requests {
    random: fastrand::Rng,
}

impl Requests {
    pub(super) fn new(seed: u64, turn: u64, client: u16) -> Self {
        let mixed = seed ^ (turn << 16).wrapping_add(client.into()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { random: fastrand::Rng::with_seed(mixed) }
    }

    pub(super) fn next(&mut self) -> Request {
        let random = &mut self.random;
        let manner = match random.u32(0..100) {
            0..10 => Manner::Leaving(random.u32(0..40)),
            10..20 => Manner::Slow(Duration::from_millis(random.u64(10..150))),
            20..25 => Manner::Malformed,
            25..28 => Manner::Half,
            _ => Manner::Patient,
        };
        let body = match manner {
            Manner::Malformed => MALFORMED[random.usize(..MALFORMED.len())].to_vec(),
            _ => self.conversation(),
        };
        Request { manner, body }
    }

    fn conversation(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let words = random.usize(5..300);
        let start = random.usize(..TEXT.len() / 2);
        // The first piece may begin within a word or a character.
        let passage: Vec<&str> = TEXT
            .get(TEXT.ceil_char_boundary(start)..)
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .take(words)
            .collect();
        let question = QUESTIONS[random.usize(..QUESTIONS.len())];
        let body = json!({
            "model": "model",
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": random.u32(16..160),
            "temperature": 0.8,
            "seed": random.u32(..),
            "messages": [
                {"role": "system", "content": SYSTEM[random.usize(..SYSTEM.len())]},
                {"role": "user", "content": format!("{question}\n\n{}", passage.join(" "))},
            ],
        });
        body.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_same_each_time_and_differ_by_client() {
        let bodies = |client| {
            let mut requests = Requests::new(1, 2, client);
            (0..20).map(|_| requests.next().body).collect::<Vec<_>>()
        };
        assert_eq!(bodies(3), bodies(3));
        assert_ne!(bodies(3), bodies(4));
    }

    #[test]
    fn every_manner_comes_up() {
        let mut requests = Requests::new(1, 0, 0);
        let manners: Vec<Manner> = (0..500).map(|_| requests.next().manner).collect();
        for is_one in [
            |m: &Manner| matches!(m, Manner::Patient),
            |m: &Manner| matches!(m, Manner::Leaving(_)),
            |m: &Manner| matches!(m, Manner::Slow(_)),
            |m: &Manner| matches!(m, Manner::Malformed),
            |m: &Manner| matches!(m, Manner::Half),
        ] {
            assert!(manners.iter().any(is_one));
        }
    }
}
