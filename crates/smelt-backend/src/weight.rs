//! Bytes of weights, wherever they live.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// What keeps bytes of weights alive.
pub trait Owner: Send + Sync {
    /// All of them.
    fn bytes(&self) -> &[u8];

    /// Hears that nobody is going to read a part of them soon. An owner that can get them back, from a file, may free their memory.
    fn release(&self, _range: Range<usize>) {}
}

impl Owner for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A view of bytes that some owner keeps alive (a memory map, a vector). Cloning shares the owner.
#[derive(Clone)]
pub struct WeightBytes {
    owner: Arc<dyn Owner>,
    range: Range<usize>,
}

impl WeightBytes {
    /// A view of `range` of the owner's bytes.
    ///
    /// # Panics
    /// If the range lies outside.
    pub fn new(owner: Arc<dyn Owner>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= owner.bytes().len(), "range outside its owner");
        Self { owner, range }
    }

    /// A part of this view.
    ///
    /// # Panics
    /// If the range lies outside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.range.len(), "range outside its owner");
        let start = self.range.start;
        Self { owner: self.owner.clone(), range: start + range.start..start + range.end }
    }

    /// Tells the owner that nobody is going to read these bytes soon; they stay readable.
    pub fn release(&self) {
        self.owner.release(self.range.clone());
    }
}

impl From<Vec<u8>> for WeightBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { owner: Arc::new(bytes), range }
    }
}

impl Deref for WeightBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.owner.bytes()[self.range.clone()]
    }
}

impl std::fmt::Debug for WeightBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WeightBytes({} bytes)", self.range.len())
    }
}
