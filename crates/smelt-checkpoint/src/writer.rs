//! Writes GGUF version 3, little-endian, to any stream.

use std::io::Write;

use indexmap::IndexMap;
use smelt_quant::Format;

use crate::parse::{self, ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAX_KEY, MAX_TENSOR_NAME};
use crate::value::{Array, Value};
use crate::{Error, Place, Problem};

/// The keys and the tensor table of a file to be written.
///
/// ```
/// # fn main() -> Result<(), smelt_checkpoint::Error> {
/// let f32 = smelt_quant::by_name("F32").expect("F32 is always there");
/// let mut writer = smelt_checkpoint::GgufWriter::new();
/// writer.set("general.architecture", "llama")?;
/// writer.tensor("output_norm.weight", f32, &[2])?;
/// let mut data = writer.start(Vec::new())?;
/// data.append("output_norm.weight", &[0; 8])?;
/// let file: Vec<u8> = data.finish()?;
/// # assert_eq!(smelt_checkpoint::Checkpoint::from_bytes(file)?.tensors().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct GgufWriter {
    pairs: IndexMap<String, Value>,
    tensors: IndexMap<String, Planned>,
}

/// One entry of the table.
#[derive(Debug, Clone)]
struct Planned {
    format: &'static Format,
    shape: Vec<u64>,
    byte_len: usize,
}

impl GgufWriter {
    /// A file without keys and tensors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key; a second value replaces the first in its place. `general.alignment` (u32, a power of two) sets the
    /// file's alignment, which is 32 otherwise.
    ///
    /// # Errors
    /// The key is empty or too long, or the alignment is none.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<(), Error> {
        let value = value.into();
        let refuse = |problem| Err(unwritable(Place::Key(key.to_owned()), problem));
        if let Err(problem) = parse::check_name("key", key.len() as u64, MAX_KEY) {
            return refuse(problem);
        }
        if key == ALIGNMENT_KEY
            && let Err(problem) = parse::check_alignment(&value)
        {
            return refuse(problem);
        }
        self.pairs.insert(key.to_owned(), value);
        Ok(())
    }

    /// Plans the next tensor. `shape` is in ggml's order: the length of a row first.
    ///
    /// # Errors
    /// The name is empty, too long or used already, there are more than four dimensions or one is zero, a row is no
    /// whole number of blocks, or the size overflows.
    pub fn tensor(&mut self, name: &str, format: &'static Format, shape: &[usize]) -> Result<(), Error> {
        let refuse = |problem| unwritable(Place::Tensor(name.to_owned()), problem);
        parse::check_name("tensor name", name.len() as u64, MAX_TENSOR_NAME).map_err(refuse)?;
        let shape: Vec<u64> = shape.iter().map(|&dim| dim as u64).collect();
        let (_, byte_len) = parse::layout(format, &shape).map_err(refuse)?;
        if self.tensors.insert(name.to_owned(), Planned { format, shape, byte_len }).is_some() {
            return Err(refuse(Problem::Duplicate));
        }
        Ok(())
    }

    /// Writes the header, the keys and the table; the data follows through what is returned.
    ///
    /// # Errors
    /// The stream fails, or all tensors together overflow 64 bits.
    pub fn start<W: Write>(self, mut out: W) -> Result<TensorWriter<W>, Error> {
        let alignment = match self.pairs.get(ALIGNMENT_KEY) {
            Some(Value::U32(alignment)) => u64::from(*alignment),
            _ => u64::from(DEFAULT_ALIGNMENT),
        };
        let mut head = Vec::new();
        head.extend_from_slice(b"GGUF");
        head.extend_from_slice(&3u32.to_le_bytes());
        head.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        head.extend_from_slice(&(self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            put_string(&mut head, key);
            put_value(&mut head, value);
        }
        let mut offset = 0u64;
        for (name, planned) in &self.tensors {
            put_string(&mut head, name);
            let n_dims = u32::try_from(planned.shape.len()).expect("`tensor` allows four dimensions");
            head.extend_from_slice(&n_dims.to_le_bytes());
            put_numbers(&mut head, &planned.shape, u64::to_le_bytes);
            head.extend_from_slice(&planned.format.ggml_type.to_le_bytes());
            head.extend_from_slice(&offset.to_le_bytes());
            offset = (planned.byte_len as u64)
                .checked_next_multiple_of(alignment)
                .and_then(|padded| offset.checked_add(padded))
                .ok_or_else(|| {
                    let shape = planned.shape.clone();
                    unwritable(Place::Tensor(name.clone()), Problem::Size { shape })
                })?;
        }
        out.write_all(&head).map_err(write_error)?;
        put_zeros(&mut out, padding(head.len() as u64, alignment)).map_err(write_error)?;
        let tensors = self.tensors.into_iter().map(|(name, planned)| (name, planned.byte_len)).collect();
        Ok(TensorWriter { out, tensors, current: 0, written: 0, alignment })
    }
}

/// Takes the data of the tensors in the order in which they were planned.
#[derive(Debug)]
pub struct TensorWriter<W> {
    out: W,
    /// Names and byte lengths.
    tensors: Vec<(String, usize)>,
    current: usize,
    /// Bytes of the current tensor.
    written: usize,
    alignment: u64,
}

impl<W: Write> TensorWriter<W> {
    /// Appends bytes to a tensor; any number of calls may make up one tensor.
    ///
    /// # Errors
    /// It is not this tensor's turn, there are more bytes than its shape asks for, or the stream fails.
    pub fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let Some((expected, byte_len)) = self.tensors.get(self.current) else {
            return Err(Error::WriteOrder { found: name.to_owned(), expected: "the end".to_owned() });
        };
        if name != expected {
            return Err(Error::WriteOrder { found: name.to_owned(), expected: expected.clone() });
        }
        if bytes.len() > byte_len - self.written {
            let found = self.written.saturating_add(bytes.len());
            return Err(Error::WriteLength { name: name.to_owned(), expected: *byte_len, found });
        }
        self.out.write_all(bytes).map_err(write_error)?;
        self.written += bytes.len();
        if self.written == *byte_len {
            let pad = padding(self.written as u64, self.alignment);
            put_zeros(&mut self.out, pad).map_err(write_error)?;
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    /// Flushes the stream and gives it back.
    ///
    /// # Errors
    /// A tensor is not complete, or the stream fails.
    pub fn finish(mut self) -> Result<W, Error> {
        if let Some((name, expected)) = self.tensors.get(self.current) {
            return Err(Error::WriteLength { name: name.clone(), expected: *expected, found: self.written });
        }
        self.out.flush().map_err(write_error)?;
        Ok(self.out)
    }
}

fn unwritable(place: Place, problem: Problem) -> Error {
    Error::Unwritable { place, problem: Box::new(problem) }
}

fn write_error(source: std::io::Error) -> Error {
    Error::Write { source }
}

fn padding(len: u64, alignment: u64) -> u64 {
    len.next_multiple_of(alignment) - len
}

/// Writes zeros without holding them all: the alignment may be large.
fn put_zeros(out: &mut impl Write, count: u64) -> std::io::Result<()> {
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), count), out).map(|_| ())
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_numbers<const N: usize, T: Copy>(out: &mut Vec<u8>, values: &[T], bytes: fn(T) -> [u8; N]) {
    values.iter().for_each(|&value| out.extend_from_slice(&bytes(value)));
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(&value.type_id().to_le_bytes());
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => put_string(out, v),
        Value::Array(v) => put_array(out, v),
        Value::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend_from_slice(&array.type_id().to_le_bytes());
    out.extend_from_slice(&(array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend_from_slice(v),
        Array::I8(v) => put_numbers(out, v, i8::to_le_bytes),
        Array::U16(v) => put_numbers(out, v, u16::to_le_bytes),
        Array::I16(v) => put_numbers(out, v, i16::to_le_bytes),
        Array::U32(v) => put_numbers(out, v, u32::to_le_bytes),
        Array::I32(v) => put_numbers(out, v, i32::to_le_bytes),
        Array::F32(v) => put_numbers(out, v, f32::to_le_bytes),
        Array::Bool(v) => put_numbers(out, v, |b| [u8::from(b)]),
        Array::String(v) => v.iter().for_each(|text| put_string(out, text)),
        Array::U64(v) => put_numbers(out, v, u64::to_le_bytes),
        Array::I64(v) => put_numbers(out, v, i64::to_le_bytes),
        Array::F64(v) => put_numbers(out, v, f64::to_le_bytes),
    }
}
