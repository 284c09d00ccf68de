//! Reads the header, the keys and the tensor table from the bytes of one file.
//!
//! ```text
//! "GGUF" · version u32 · n_tensors u64 · n_pairs u64
//! n_pairs   × { key: string · type u32 · value }          string = length u64 · bytes
//! n_tensors × { name: string · n_dims u32 · ne[n_dims] u64 · type u32 · offset u64 }
//! padding to the alignment, then the data that the offsets count from
//! ```
//!
//! All integers are little-endian. Nothing is allocated for a count before the bytes for so many items are known to
//! exist.

use std::collections::HashSet;

use indexmap::IndexMap;
use smelt_quant::Format;

use crate::value::{self, Array, Value};
use crate::{Place, Problem};

/// The key of the alignment, and its value where the key is absent.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;
/// The longest names that the format allows, in bytes.
pub(crate) const MAX_KEY: u64 = 65535;
pub(crate) const MAX_TENSOR_NAME: u64 = 64;
/// ggml's limit.
pub(crate) const MAX_DIMS: u32 = 4;
/// The least bytes that a pair (length, one byte of key, type, one byte) and a table entry (length, one byte of
/// name, dimensions, type, offset) take.
const MIN_PAIR: u64 = 8 + 1 + 4 + 1;
const MIN_ENTRY: u64 = 8 + 1 + 4 + 4 + 8;

/// A problem and where it is; the caller adds the file.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) offset: u64,
    pub(crate) place: Place,
    pub(crate) problem: Problem,
}

/// The parsed parts of one file.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) pairs: IndexMap<String, Value>,
    pub(crate) tensors: Vec<Entry>,
}

/// One entry of the tensor table, checked to lie within the file.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) format: &'static Format,
    /// `ne0` (the fastest) first.
    pub(crate) shape: Vec<usize>,
    /// From the start of the file.
    pub(crate) start: usize,
    pub(crate) byte_len: usize,
}

/// Parses a whole file.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Flaw> {
    let mut cursor = Cursor { bytes, pos: 0, place: Place::Header };
    let (n_tensors, n_pairs) = header(&mut cursor)?;
    let pairs = pairs(&mut cursor, n_pairs)?;
    let alignment = u64::from(match pairs.get(ALIGNMENT_KEY) {
        Some(Value::U32(alignment)) => *alignment,
        _ => DEFAULT_ALIGNMENT,
    });
    let tensors = table(&mut cursor, n_tensors, alignment)?;
    Ok(Parsed { pairs, tensors })
}

fn header(cursor: &mut Cursor<'_>) -> Result<(u64, u64), Flaw> {
    let found = cursor.array("the magic number")?;
    if &found != b"GGUF" {
        return Err(cursor.flaw(0, Problem::Magic { found }));
    }
    let at = cursor.pos;
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => {}
        1 => return Err(cursor.flaw(at, Problem::VersionOne)),
        // A big-endian version 1, 2 or 3: its low 16 bits are zero, which no little-endian version's are.
        v if v != 0 && v.trailing_zeros() >= 16 => {
            return Err(cursor.flaw(at, Problem::BigEndian { version: v.swap_bytes() }));
        }
        found => return Err(cursor.flaw(at, Problem::Version { found })),
    }
    let at = cursor.pos;
    let n_tensors = cursor.u64("the tensor count")?;
    let n_pairs = cursor.u64("the key count")?;
    let left = cursor.left();
    if n_tensors > left / MIN_ENTRY {
        return Err(cursor.flaw(at, Problem::Count { what: "tensors", count: n_tensors, left }));
    }
    if n_pairs > left / MIN_PAIR {
        return Err(cursor.flaw(at + 8, Problem::Count { what: "keys", count: n_pairs, left }));
    }
    Ok((n_tensors, n_pairs))
}

fn pairs(cursor: &mut Cursor<'_>, count: u64) -> Result<IndexMap<String, Value>, Flaw> {
    let mut pairs = IndexMap::new();
    for n in 0..count {
        cursor.place = Place::Pair(n);
        let at = cursor.pos;
        let key = cursor.name("key", MAX_KEY)?;
        cursor.place = Place::Key(key.clone());
        let value_at = cursor.pos;
        let value = cursor.value()?;
        if key == ALIGNMENT_KEY {
            check_alignment(&value).map_err(|problem| cursor.flaw(value_at, problem))?;
        }
        if pairs.insert(key, value).is_some() {
            return Err(cursor.flaw(at, Problem::Duplicate));
        }
    }
    Ok(pairs)
}

/// Reads the table. Offsets must place the tensors one after the other in the table's order, each padded to the
/// alignment, as every writer does; so no two can overlap.
fn table(cursor: &mut Cursor<'_>, count: u64, alignment: u64) -> Result<Vec<Entry>, Flaw> {
    let mut names = HashSet::new();
    // Entry, its data offset, and where its offset field is.
    let mut entries: Vec<(Entry, u64, usize)> = Vec::new();
    let mut next = 0u64;
    for n in 0..count {
        cursor.place = Place::Entry(n);
        let at = cursor.pos;
        let name = cursor.name("tensor name", MAX_TENSOR_NAME)?;
        cursor.place = Place::Tensor(name.clone());
        if !names.insert(name.clone()) {
            return Err(cursor.flaw(at, Problem::Duplicate));
        }
        let (format, shape, byte_len) = shape_and_type(cursor)?;
        let at = cursor.pos;
        let offset = cursor.u64("the data offset")?;
        if !offset.is_multiple_of(alignment) {
            return Err(cursor.flaw(at, Problem::Misaligned { offset, alignment }));
        }
        if offset != next {
            let verb = if offset < next { "overlap" } else { "leave a gap" };
            return Err(cursor.flaw(at, Problem::Offset { found: offset, expected: next, verb }));
        }
        next = (byte_len as u64)
            .checked_next_multiple_of(alignment)
            .and_then(|padded| offset.checked_add(padded))
            .ok_or_else(|| {
                let left = cursor.left();
                cursor.flaw(at, Problem::Short { what: "the data", need: byte_len as u64, left })
            })?;
        entries.push((Entry { name, format, shape, start: 0, byte_len }, offset, at));
    }
    let data = (cursor.pos as u64).next_multiple_of(alignment);
    entries.into_iter().map(|(entry, offset, at)| cursor.place_data(entry, data, offset, at)).collect()
}

/// The dimensions and the type of the tensor at the cursor, and the bytes that they make.
fn shape_and_type(cursor: &mut Cursor<'_>) -> Result<(&'static Format, Vec<usize>, usize), Flaw> {
    let at = cursor.pos;
    let n_dims = cursor.u32("the number of dimensions")?;
    if n_dims > MAX_DIMS {
        return Err(cursor.flaw(at, Problem::Dimensions { found: n_dims as usize, limit: MAX_DIMS }));
    }
    let dims_at = cursor.pos;
    let dims: Vec<u64> = (0..n_dims).map(|_| cursor.u64("a dimension")).collect::<Result<_, _>>()?;
    let type_at = cursor.pos;
    let id = cursor.u32("the tensor type")?;
    let Some(format) = smelt_quant::by_ggml_type(id) else {
        return Err(cursor.flaw(type_at, Problem::TensorType { id }));
    };
    let (shape, byte_len) = layout(format, &dims).map_err(|problem| cursor.flaw(dims_at, problem))?;
    Ok((format, shape, byte_len))
}

/// The shape and the byte length of a tensor. Neither its values nor its bytes overflow 63 bits.
pub(crate) fn layout(format: &Format, dims: &[u64]) -> Result<(Vec<usize>, usize), Problem> {
    if dims.len() > MAX_DIMS as usize {
        return Err(Problem::Dimensions { found: dims.len(), limit: MAX_DIMS });
    }
    for (index, &found) in dims.iter().enumerate() {
        if found == 0 || i64::try_from(found).is_err() {
            return Err(Problem::Dimension { index, found });
        }
    }
    let row = dims.first().copied().unwrap_or(1);
    if !row.is_multiple_of(format.block_len as u64) {
        return Err(Problem::RowLength { found: row, format: format.name, block_len: format.block_len });
    }
    let sizes = || {
        let shape: Vec<usize> = dims.iter().map(|&d| usize::try_from(d).ok()).collect::<Option<_>>()?;
        let values = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        let byte_len = format.row_bytes(values)?;
        i64::try_from(values).ok()?;
        i64::try_from(byte_len).ok()?;
        Some((shape, byte_len))
    };
    sizes().ok_or_else(|| Problem::Size { shape: dims.to_vec() })
}

/// Whether a key or a tensor name has a length that the format allows.
pub(crate) fn check_name(what: &'static str, len: u64, limit: u64) -> Result<(), Problem> {
    match len {
        0 => Err(Problem::EmptyName { what }),
        len if len > limit => Err(Problem::LongName { what, len, limit }),
        _ => Ok(()),
    }
}

/// Whether the value of [`ALIGNMENT_KEY`] is one.
pub(crate) fn check_alignment(value: &Value) -> Result<(), Problem> {
    match *value {
        Value::U32(alignment) if alignment.is_power_of_two() => Ok(()),
        Value::U32(found) => Err(Problem::Alignment { found }),
        ref other => Err(Problem::AlignmentType { found: value::type_name(other.type_id()) }),
    }
}

/// A position in the file; `place` is what errors call it.
struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    place: Place,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> u64 {
        (self.bytes.len() - self.pos) as u64
    }

    fn flaw(&self, offset: usize, problem: Problem) -> Flaw {
        Flaw { offset: offset as u64, place: self.place.clone(), problem }
    }

    /// The next `need` bytes.
    fn take(&mut self, need: u64, what: &'static str) -> Result<&'a [u8], Flaw> {
        let left = self.left();
        match usize::try_from(need) {
            Ok(n) if need <= left => {
                let bytes = &self.bytes[self.pos..self.pos + n];
                self.pos += n;
                Ok(bytes)
            }
            _ => Err(self.flaw(self.pos, Problem::Short { what, need, left })),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Flaw> {
        let bytes = self.take(N as u64, what)?;
        Ok(*bytes.first_chunk().expect("take gives as many bytes as were asked for"))
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, Flaw> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, Flaw> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string, length first.
    fn string(&mut self, what: &'static str) -> Result<String, Flaw> {
        let len = self.u64("the length of a string")?;
        self.text(len, what)
    }

    /// A key or a tensor name: a string that is not empty and not longer than `limit`.
    fn name(&mut self, what: &'static str, limit: u64) -> Result<String, Flaw> {
        let at = self.pos;
        let len = self.u64("the length of a name")?;
        check_name(what, len, limit).map_err(|problem| self.flaw(at, problem))?;
        self.text(len, what)
    }

    /// `len` bytes of UTF-8. They are copied before they are checked: the map may change under a borrowed `str`.
    fn text(&mut self, len: u64, what: &'static str) -> Result<String, Flaw> {
        let at = self.pos;
        let bytes = self.take(len, what)?.to_vec();
        String::from_utf8(bytes)
            .map_err(|e| self.flaw(at, Problem::Utf8 { what, valid: e.utf8_error().valid_up_to() }))
    }

    /// A value, type first.
    fn value(&mut self) -> Result<Value, Flaw> {
        const WHAT: &str = "the value";
        let at = self.pos;
        Ok(match self.u32("the value type")? {
            0 => Value::U8(u8::from_le_bytes(self.array(WHAT)?)),
            1 => Value::I8(i8::from_le_bytes(self.array(WHAT)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(WHAT)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(WHAT)?)),
            4 => Value::U32(self.u32(WHAT)?),
            5 => Value::I32(i32::from_le_bytes(self.array(WHAT)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(WHAT)?)),
            7 => Value::Bool(self.bools(1)?[0]),
            8 => Value::String(self.string(WHAT)?),
            value::ARRAY => Value::Array(self.elements()?),
            10 => Value::U64(self.u64(WHAT)?),
            11 => Value::I64(i64::from_le_bytes(self.array(WHAT)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(WHAT)?)),
            id => return Err(self.flaw(at, Problem::ValueType { id })),
        })
    }

    /// The type, the count and the elements of an array.
    fn elements(&mut self) -> Result<Array, Flaw> {
        let at = self.pos;
        let id = self.u32("the type of the elements")?;
        let count_at = self.pos;
        let count = self.u64("the number of elements")?;
        Ok(match id {
            0 => Array::U8(self.numbers(count, u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(count, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(count, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(count, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(count, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(count, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(count, f32::from_le_bytes)?),
            7 => Array::Bool(self.bools(count)?),
            8 => Array::String(self.strings(count, count_at)?),
            value::ARRAY => return Err(self.flaw(at, Problem::NestedArray)),
            10 => Array::U64(self.numbers(count, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(count, i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(count, f64::from_le_bytes)?),
            id => return Err(self.flaw(at, Problem::ValueType { id })),
        })
    }

    fn numbers<const N: usize, T>(&mut self, count: u64, read: fn([u8; N]) -> T) -> Result<Vec<T>, Flaw> {
        let bytes = self.take(count.saturating_mul(N as u64), "the array")?;
        let (values, _) = bytes.as_chunks();
        Ok(values.iter().map(|&value| read(value)).collect())
    }

    fn bools(&mut self, count: u64) -> Result<Vec<bool>, Flaw> {
        let at = self.pos;
        let bytes = self.take(count, "the bool")?;
        match bytes.iter().position(|&b| b > 1) {
            Some(i) => Err(self.flaw(at + i, Problem::Bool { found: bytes[i] })),
            None => Ok(bytes.iter().map(|&b| b == 1).collect()),
        }
    }

    fn strings(&mut self, count: u64, count_at: usize) -> Result<Vec<String>, Flaw> {
        let left = self.left();
        if count > left / 8 {
            return Err(self.flaw(count_at, Problem::Count { what: "strings", count, left }));
        }
        (0..count).map(|_| self.string("a string of the array")).collect()
    }

    /// Completes an entry whose data lies at `offset` from `data`; `at` is where the offset is written.
    fn place_data(&self, entry: Entry, data: u64, offset: u64, at: usize) -> Result<Entry, Flaw> {
        let len = self.bytes.len() as u64;
        let need = entry.byte_len as u64;
        let start = data.saturating_add(offset);
        match usize::try_from(start) {
            Ok(usize_start) if start <= len && need <= len - start => {
                Ok(Entry { start: usize_start, ..entry })
            }
            _ => Err(Flaw {
                offset: at as u64,
                place: Place::Tensor(entry.name),
                problem: Problem::Short { what: "the data", need, left: len.saturating_sub(start) },
            }),
        }
    }
}
