//! Pages of the KV cache: who holds them, and which are free.

/// Hands out pages, lowest first, and grows in groups so that a short chat takes little memory. A page may be held by
/// several: sequences that share a prefix, and the prefix cache.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    free: Vec<u32>,
    /// How many hold each page.
    holders: Vec<u32>,
    /// Whether the prefix cache is one of them.
    cached: Vec<bool>,
    /// Pages that only the prefix cache holds.
    idle: usize,
}

/// Pages by which the pool grows: 256 tokens.
const GROUP: usize = 8;

impl Pages {
    /// Pages that must be reserved for `n` more to be free; `None` if enough are.
    pub(crate) fn growth(&self, n: usize) -> Option<usize> {
        let missing = n.saturating_sub(self.free.len());
        (missing > 0).then(|| self.holders.len() + missing.next_multiple_of(GROUP))
    }

    /// Makes reserved pages available.
    pub(crate) fn grow(&mut self, reserved: usize) {
        self.free.extend((self.holders.len() as u32..reserved as u32).rev());
        self.holders.resize(reserved, 0);
        self.cached.resize(reserved, false);
    }

    /// Pages that exist.
    pub(crate) fn reserved(&self) -> usize {
        self.holders.len()
    }

    /// Pages that nobody holds.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages that only the prefix cache holds.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    /// Whether only the prefix cache holds a page.
    pub(crate) fn is_idle(&self, page: u32) -> bool {
        self.cached[page as usize] && self.holders[page as usize] == 1
    }

    /// Takes a free page.
    ///
    /// # Panics
    /// If none is: see [`Pages::growth`].
    pub(crate) fn take(&mut self) -> u32 {
        let page = self.free.pop().expect("grown before taking");
        self.holders[page as usize] = 1;
        page
    }

    /// Adds a holder to a page that has some.
    pub(crate) fn share(&mut self, page: u32) {
        self.idle -= usize::from(self.is_idle(page));
        self.holders[page as usize] += 1;
    }

    /// Adds the prefix cache to the holders of a page.
    pub(crate) fn cache(&mut self, page: u32) {
        self.holders[page as usize] += 1;
        self.cached[page as usize] = true;
    }

    /// Takes the prefix cache from the holders of a page that it alone holds.
    pub(crate) fn uncache(&mut self, page: u32) {
        debug_assert!(self.is_idle(page), "page {page} is in use");
        self.idle -= 1;
        self.cached[page as usize] = false;
        self.holders[page as usize] = 0;
        self.free.push(page);
    }

    /// Gives pages back.
    pub(crate) fn give(&mut self, pages: impl IntoIterator<Item = u32>) {
        for page in pages {
            self.holders[page as usize] -= 1;
            if self.holders[page as usize] == 0 {
                self.free.push(page);
            }
            self.idle += usize::from(self.is_idle(page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_out_once() {
        let mut pages = Pages::default();
        assert_eq!(pages.growth(3), Some(8));
        pages.grow(8);
        let taken: Vec<u32> = (0..8).map(|_| pages.take()).collect();
        assert_eq!(taken, (0..8).collect::<Vec<u32>>());
        assert_eq!(pages.growth(1), Some(16));
        pages.give([3, 5]);
        assert_eq!(pages.growth(2), None);
        assert_eq!((pages.take(), pages.take()), (5, 3));
    }

    #[test]
    fn a_page_is_free_when_its_last_holder_gives_it_back() {
        let mut pages = Pages::default();
        pages.grow(8);
        let page = pages.take();
        pages.share(page);
        pages.cache(page);
        pages.give([page]);
        assert_eq!((pages.free(), pages.idle()), (7, 0));
        pages.give([page]);
        assert_eq!((pages.free(), pages.idle()), (7, 1));
        pages.share(page);
        assert_eq!(pages.idle(), 0);
        pages.give([page]);
        pages.uncache(page);
        assert_eq!((pages.free(), pages.idle()), (8, 0));
    }
}
