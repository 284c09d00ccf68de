//! The merge loop that both byte-pair kinds share.
//!
//! Symbols form a linked list; a heap holds every adjacent pair that may merge. The best pair (lowest rank, then
//! leftmost) merges, its two new neighbours enter the heap, and pairs whose parts have changed since are dropped when
//! they surface. So a text of n symbols costs O(n log n), however long its runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No symbol, no token.
pub(crate) const NONE: u32 = u32::MAX;

/// A stretch of the text. `len` 0 marks a symbol that was merged into its left neighbour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// Byte offset and length.
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// The token it spells, or [`NONE`].
    pub(crate) id: u32,
    prev: u32,
    next: u32,
}

/// Buffers of the loop, kept between words.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    /// `(rank, left symbol, length of the pair, id of the pair)`.
    heap: BinaryHeap<Reverse<(u32, u32, u32, u32)>>,
}

impl Merger {
    /// Forgets the last word.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.heap.clear();
    }

    /// Appends a symbol to the right end.
    pub(crate) fn push(&mut self, start: u32, len: u32, id: u32) {
        let index = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = index;
        }
        let prev = index.checked_sub(1).unwrap_or(NONE);
        self.symbols.push(Symbol { start, len, id, prev, next: NONE });
    }

    /// Merges to the end. `pair` gives the rank and the id of two neighbours' union, if it exists.
    pub(crate) fn run(&mut self, pair: impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        for left in 0..self.symbols.len().saturating_sub(1) {
            self.offer(left as u32, &pair);
        }
        while let Some(Reverse((_, left, len, id))) = self.heap.pop() {
            let l = self.symbols[left as usize];
            if l.len == 0 || l.next == NONE {
                continue;
            }
            // The left part can only have grown, and the right one too, so an unchanged sum means an unchanged pair.
            let r = self.symbols[l.next as usize];
            if l.len + r.len != len {
                continue;
            }
            self.symbols[l.next as usize].len = 0;
            self.symbols[left as usize] = Symbol { len, id, next: r.next, ..l };
            if r.next != NONE {
                self.symbols[r.next as usize].prev = left;
                self.offer(left, &pair);
            }
            if l.prev != NONE {
                self.offer(l.prev, &pair);
            }
        }
    }

    fn offer(&mut self, left: u32, pair: &impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        let l = &self.symbols[left as usize];
        let r = &self.symbols[l.next as usize];
        if let Some((rank, id)) = pair(l, r) {
            self.heap.push(Reverse((rank, left, l.len + r.len, id)));
        }
    }

    /// What is left, in order.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|s| s.len > 0)
    }
}
