//! The cache's pages as the scheduler sees them: what sequences hold, and prefixes kept for those to come.

use super::radix::{Insert, NodeId, Radix};
use super::stepper::Stepper;
use crate::Error;
use crate::pages::Pages;
use smelt_backend::PAGE_TOKENS;

/// A copy of fewer tokens than this saves less than it costs.
const LEAST_COPY: usize = 4;

/// What a sequence has in the cache.
#[derive(Debug)]
pub(super) struct Held {
    /// Page `i` holds the tokens `i * PAGE_TOKENS ..`.
    pub(super) pages: Vec<u32>,
    /// Tokens whose keys and values are there.
    pub(super) computed: usize,
    /// How many of the pages the tree has, and the node of the last.
    published: usize,
    node: NodeId,
}

impl Default for Held {
    fn default() -> Self {
        Self { pages: Vec::new(), computed: 0, published: 0, node: NodeId::ROOT }
    }
}

/// All pages.
#[derive(Debug)]
pub(super) struct Cache {
    pages: Pages,
    tree: Radix,
    /// Pages that may be.
    most: usize,
    /// Whether what is computed is kept for sequences to come. It is of no use to them where it depends on tokens that
    /// come later.
    keep: bool,
}

impl Cache {
    pub(super) fn new(most: usize, keep: bool) -> Self {
        Self { pages: Pages::default(), tree: Radix::default(), most, keep }
    }

    /// Pages that may be.
    pub(super) fn capacity(&self) -> usize {
        self.most
    }

    /// Pages that sequences can take: free ones, ones to be reserved, and those that are only kept.
    pub(super) fn available(&self) -> usize {
        self.most - self.pages.reserved() + self.pages.free() + self.pages.idle()
    }

    /// Pages that sequences hold.
    pub(super) fn in_use(&self) -> usize {
        self.pages.reserved() - self.pages.free() - self.pages.idle()
    }

    /// Pages that the tree has.
    pub(super) fn kept(&self) -> usize {
        self.tree.len()
    }

    /// Takes a page, if need be from what is only kept; `None` if sequences hold all.
    ///
    /// # Errors
    /// If there is no memory for the first page.
    pub(super) fn take(&mut self, stepper: &mut dyn Stepper) -> Result<Option<u32>, Error> {
        if let Some(reserved) = self.pages.growth(1).map(|wanted| wanted.min(self.most))
            && reserved > self.pages.reserved()
        {
            match stepper.reserve_pages(reserved) {
                Ok(()) => self.pages.grow(reserved),
                // Memory is short: what there is must do.
                Err(_) if self.pages.reserved() > 0 => self.most = self.pages.reserved(),
                Err(error) => return Err(error),
            }
        }
        if self.pages.free() == 0 {
            let Some(page) = self.tree.evict(|page| self.pages.is_idle(page)) else { return Ok(None) };
            self.pages.uncache(page);
        }
        Ok(Some(self.pages.take()))
    }

    /// Pages that a sequence of `tokens` would have to take, if nobody else used what is kept of it: those that it
    /// lacks, and those that only the tree holds.
    pub(super) fn cost(&mut self, tokens: &[u32], reuse: usize) -> usize {
        let found = self.tree.find(&tokens[..reuse]);
        let shared = found.pages.iter().filter(|page| !self.pages.is_idle(**page)).count();
        tokens.len().div_ceil(PAGE_TOKENS) - shared
    }

    /// What is kept of `tokens`, for a sequence that begins.
    ///
    /// # Errors
    /// Those of [`Cache::take`].
    pub(super) fn begin(&mut self, tokens: &[u32], stepper: &mut dyn Stepper) -> Result<Held, Error> {
        let found = self.tree.find(tokens);
        found.pages.iter().for_each(|page| self.pages.share(*page));
        let published = found.pages.len();
        let node = found.node.unwrap_or(NodeId::ROOT);
        let mut held = Held { computed: published * PAGE_TOKENS, pages: found.pages, published, node };
        if let Some((from, count)) = found.part.filter(|(_, count)| *count >= LEAST_COPY) {
            // The source must not be the page that is taken.
            self.pages.share(from);
            let taken = self.take(stepper);
            self.pages.give([from]);
            match taken {
                Ok(Some(to)) => {
                    stepper.copy_page(from, to, count);
                    held.pages.push(to);
                    held.computed += count;
                }
                Ok(None) => {}
                Err(error) => {
                    self.pages.give(held.pages);
                    return Err(error);
                }
            }
        }
        Ok(held)
    }

    /// The same tokens for another sequence: whole pages are shared, the last part is copied if there is a page for it.
    ///
    /// # Errors
    /// Those of [`Cache::take`].
    pub(super) fn fork(&mut self, held: &Held, stepper: &mut dyn Stepper) -> Result<Held, Error> {
        let whole = held.computed / PAGE_TOKENS;
        let part = held.computed % PAGE_TOKENS;
        let copy = if part > 0 { self.take(stepper)? } else { None };
        let mut pages = held.pages[..whole].to_vec();
        pages.iter().for_each(|page| self.pages.share(*page));
        let mut computed = whole * PAGE_TOKENS;
        if let Some(to) = copy {
            stepper.copy_page(held.pages[whole], to, part);
            pages.push(to);
            computed += part;
        }
        Ok(Held { pages, computed, published: held.published, node: held.node })
    }

    /// Lets later sequences use the whole pages of `tokens` that are computed.
    pub(super) fn publish(&mut self, held: &mut Held, tokens: &[u32]) {
        while self.keep && (held.published + 1) * PAGE_TOKENS <= held.computed {
            let start = held.published * PAGE_TOKENS;
            self.insert(held, &tokens[start..start + PAGE_TOKENS]);
        }
    }

    /// Ends a sequence's hold. What it computed is kept as long as there is room.
    pub(super) fn end(&mut self, mut held: Held, tokens: &[u32]) {
        self.publish(&mut held, tokens);
        let (start, end) = (held.published * PAGE_TOKENS, held.computed);
        if self.keep && end > start {
            self.insert(&mut held, &tokens[start..end]);
        }
        // The last pages are free first, so that they are the first to be taken again.
        self.pages.give(held.pages.into_iter().rev());
    }

    fn insert(&mut self, held: &mut Held, tokens: &[u32]) {
        let slot = held.published;
        let page = held.pages[slot];
        let node = match self.tree.insert(held.node, tokens, page) {
            Insert::New(node) => {
                self.pages.cache(page);
                node
            }
            Insert::Instead(node, covered) => {
                self.pages.cache(page);
                self.pages.uncache(covered);
                node
            }
            Insert::Known(node, known) => {
                // Equal tokens behind equal tokens have equal keys and values, bit for bit: one copy is enough.
                if tokens.len() == PAGE_TOKENS && known != page {
                    self.pages.share(known);
                    self.pages.give([page]);
                    held.pages[slot] = known;
                }
                node
            }
        };
        if tokens.len() == PAGE_TOKENS {
            held.published += 1;
            held.node = node;
        }
    }
}
