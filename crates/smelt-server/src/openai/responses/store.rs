//! The responses that are kept: the last ones, in memory.

use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexMap;
use serde_json::Value;
use smelt_api::{ApiError, Code};

use crate::stream::to_json;

/// Responses that are kept at most.
const MOST: usize = 4096;

/// A response that is kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) response: Value,
    /// What it answered, without what it goes on behind.
    pub(crate) input: Vec<Value>,
    pub(crate) previous: Option<String>,
    /// Which of the server's keys asked for it; nobody else sees it.
    pub(crate) owner: Option<usize>,
}

impl Kept {
    fn id(&self) -> &str {
        self.response["id"].as_str().unwrap_or_default()
    }

    /// Its input and its output.
    fn items(&self) -> impl Iterator<Item = &Value> {
        self.input.iter().chain(self.response["output"].as_array().into_iter().flatten())
    }
}

/// The responses that are kept. The one that was used least lately goes first when there is no more room.
#[derive(Debug)]
pub(crate) struct Store {
    /// Bytes of JSON that may be kept.
    room: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By id, the one that was used last at the end, with its bytes.
    kept: IndexMap<String, (Arc<Kept>, usize)>,
    bytes: usize,
}

impl Inner {
    /// Marks a response as used.
    fn touch(&mut self, id: &str) -> Option<Arc<Kept>> {
        let (id, entry) = self.kept.shift_remove_entry(id)?;
        let kept = entry.0.clone();
        self.kept.insert(id, entry);
        Some(kept)
    }
}

impl Store {
    pub(crate) fn new(room: usize) -> Self {
        Self { room, inner: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a response, for which others may have to go.
    pub(crate) fn put(&self, kept: Kept) {
        let bytes = to_json(&kept.response).len() + to_json(&kept.input).len();
        // Others needn't go for one that has no room even so.
        if bytes > self.room {
            return;
        }
        let mut inner = self.lock();
        inner.bytes += bytes;
        inner.kept.insert(kept.id().to_owned(), (Arc::new(kept), bytes));
        while inner.bytes > self.room || inner.kept.len() > MOST {
            let Some((_, (_, bytes))) = inner.kept.shift_remove_index(0) else { break };
            inner.bytes -= bytes;
        }
    }

    /// A response of `owner`'s; `param` is the parameter that asks for it.
    ///
    /// # Errors
    /// If it isn't kept.
    pub(crate) fn get(
        &self,
        id: &str,
        owner: Option<usize>,
        param: Option<&str>,
    ) -> Result<Arc<Kept>, ApiError> {
        let kept = self.lock().touch(id).filter(|kept| kept.owner == owner);
        kept.ok_or_else(|| absent("response", id, param))
    }

    /// Forgets a response.
    ///
    /// # Errors
    /// If it isn't kept.
    pub(crate) fn remove(&self, id: &str, owner: Option<usize>) -> Result<(), ApiError> {
        self.get(id, owner, None)?;
        let mut inner = self.lock();
        if let Some((_, bytes)) = inner.kept.shift_remove(id) {
            inner.bytes -= bytes;
        }
        Ok(())
    }

    /// All items up to a response, its own output included.
    ///
    /// # Errors
    /// If it, or one that it goes on behind, isn't kept.
    pub(crate) fn items(&self, id: &str, owner: Option<usize>) -> Result<Vec<Value>, ApiError> {
        let param = Some("previous_response_id");
        let mut chain = vec![self.get(id, owner, param)?];
        // A response is older than those that go on behind it, so that this ends.
        while let Some(previous) = chain.last().and_then(|kept| kept.previous.clone()) {
            chain.push(self.get(&previous, owner, param)?);
        }
        Ok(chain.iter().rev().flat_map(|kept| kept.items()).cloned().collect())
    }

    /// An item of a response of `owner`'s.
    ///
    /// # Errors
    /// If no response that is kept has it.
    pub(crate) fn item(&self, id: &str, owner: Option<usize>, param: &str) -> Result<Value, ApiError> {
        let inner = self.lock();
        let mut own = inner.kept.values().rev().filter(|(kept, _)| kept.owner == owner);
        let found = own.find_map(|(kept, _)| kept.items().find(|item| item["id"] == id).cloned());
        found.ok_or_else(|| absent("item", id, Some(param)))
    }
}

fn absent(what: &str, id: &str, param: Option<&str>) -> ApiError {
    let message = format!(
        "there is no {what} {id:?}: the last responses are kept in memory, as long as there is room and the server \
         runs, and nothing of those with \"store\": false"
    );
    ApiError { param: param.map(str::to_owned), ..ApiError::new(Code::NotFound, message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(id: &str, previous: Option<&str>) -> Kept {
        let item = |text: &str| json!({"id": format!("{text}_{id}")});
        Kept {
            response: json!({"id": id, "output": [item("out")]}),
            input: vec![item("in")],
            previous: previous.map(str::to_owned),
            owner: Some(1),
        }
    }

    #[test]
    fn what_was_used_least_lately_goes_first() {
        let one = to_json(&kept("r0", None).response).len() + to_json(&kept("r0", None).input).len();
        let store = Store::new(3 * one);
        ["r0", "r1", "r2"].iter().for_each(|id| store.put(kept(id, None)));
        assert!(store.get("r0", Some(1), None).is_ok());
        store.put(kept("r3", None));
        let is_there = |id| store.get(id, Some(1), None).is_ok();
        assert_eq!(["r0", "r1", "r2", "r3"].map(is_there), [true, false, true, true]);
        store.remove("r2", Some(1)).unwrap();
        store.put(kept("r4", None));
        assert_eq!(["r0", "r2", "r3", "r4"].map(is_there), [true, false, true, true]);
        // One that has no room at all isn't kept, and nobody goes for it.
        store.put(kept(&"r".repeat(one), None));
        assert_eq!(["r0", "r2", "r3", "r4"].map(is_there), [true, false, true, true]);
        let small = Store::new(one - 1);
        small.put(kept("r0", None));
        assert!(small.get("r0", Some(1), None).is_err() && small.lock().bytes == 0);
    }

    #[test]
    fn responses_go_on_behind_others_of_their_owner() {
        let store = Store::new(1 << 20);
        store.put(kept("a", None));
        store.put(kept("b", Some("a")));
        let ids = |items: Vec<Value>| {
            items.iter().map(|i| i["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids(store.items("b", Some(1)).unwrap()), ["in_a", "out_a", "in_b", "out_b"]);
        assert_eq!(store.item("out_a", Some(1), "p").unwrap()["id"], "out_a");
        for error in [store.items("b", None).unwrap_err(), store.item("out_a", Some(0), "p").unwrap_err()] {
            assert_eq!(error.code, Code::NotFound);
        }
        store.remove("a", Some(1)).unwrap();
        assert!(store.items("b", Some(1)).unwrap_err().message.contains("\"a\""));
    }
}
