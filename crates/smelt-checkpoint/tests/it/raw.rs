//! Builds GGUF files byte by byte, so that anything in them can be wrong. It shares no code with the crate.

/// A file under construction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Raw(pub Vec<u8>);

/// Value types used here.
pub(crate) const U16: u32 = 2;
pub(crate) const U32: u32 = 4;
pub(crate) const I32: u32 = 5;
pub(crate) const BOOL: u32 = 7;
pub(crate) const STRING: u32 = 8;
pub(crate) const ARRAY: u32 = 9;

/// Tensor types used here.
pub(crate) const F32: u32 = 0;
pub(crate) const Q8_0: u32 = 8;

impl Raw {
    /// Magic, version 3 and the counts.
    pub(crate) fn new(n_tensors: u64, n_pairs: u64) -> Self {
        Self::default().bytes(b"GGUF").u32(3).u64(n_tensors).u64(n_pairs)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// A length and bytes.
    pub(crate) fn string(self, text: impl AsRef<[u8]>) -> Self {
        self.u64(text.as_ref().len() as u64).bytes(text.as_ref())
    }

    /// A key with the bytes of its value.
    pub(crate) fn pair(self, key: &str, value_type: u32, value: &[u8]) -> Self {
        self.string(key).u32(value_type).bytes(value)
    }

    /// An entry of the tensor table.
    pub(crate) fn tensor(self, name: &str, dims: &[u64], tensor_type: u32, offset: u64) -> Self {
        let entry = self.string(name).u32(dims.len() as u32);
        dims.iter().fold(entry, |entry, &dim| entry.u64(dim)).u32(tensor_type).u64(offset)
    }

    /// Zeros up to a multiple of `alignment`.
    pub(crate) fn pad(mut self, alignment: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self
    }

    /// `len` bytes of data that tell their position.
    pub(crate) fn data(mut self, len: usize) -> Self {
        self.0.extend((0..len).map(|i| (i % 251) as u8));
        self
    }
}
