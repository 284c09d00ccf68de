//! Pages of the KV cache: which are free.

/// Hands out pages, lowest first, and grows in groups so that a short chat takes little memory.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    free: Vec<u32>,
    reserved: usize,
}

/// Pages by which the pool grows: 256 tokens.
const GROUP: usize = 8;

impl Pages {
    /// Pages that must be reserved for `n` more to be free; `None` if enough are.
    pub(crate) fn growth(&self, n: usize) -> Option<usize> {
        let missing = n.saturating_sub(self.free.len());
        (missing > 0).then(|| self.reserved + missing.next_multiple_of(GROUP))
    }

    /// Makes reserved pages available.
    pub(crate) fn grow(&mut self, reserved: usize) {
        self.free.extend((self.reserved as u32..reserved as u32).rev());
        self.reserved = reserved;
    }

    /// Takes a free page.
    ///
    /// # Panics
    /// If none is: see [`Pages::growth`].
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().expect("grown before taking")
    }

    /// Gives pages back.
    pub(crate) fn give(&mut self, pages: impl IntoIterator<Item = u32>) {
        self.free.extend(pages);
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
}
