//! An open model: metadata and tensors that view the mapped file or files.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use smelt_quant::Format;

use crate::mmap::{Health, Map};
use crate::parse::{self, Flaw, Parsed};
use crate::split::{self, PartName};
use crate::{Error, Metadata, Place, Problem};

/// An open model file, or all parts of a split one. Clones share the maps.
#[derive(Debug, Clone)]
pub struct Checkpoint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    metadata: Metadata,
    tensors: Vec<Arc<TensorInfo>>,
    by_name: HashMap<String, usize>,
    files: Vec<Arc<Region>>,
}

/// What the tensor table says about one tensor.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// GGUF's name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// How the bytes encode values.
    pub format: &'static Format,
    /// ggml's order: `ne0`, the length of a row, first; at most four, none for a single value.
    pub shape: Vec<usize>,
    /// Bytes of all values.
    pub byte_len: usize,
    file: usize,
    start: usize,
}

/// A tensor and its bytes.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub info: Arc<TensorInfo>,
    pub bytes: TensorBytes,
}

/// Bytes of a tensor in the map, which they keep alive. In a mapped file they are aligned to the file's alignment (32
/// bytes unless its writer chose less).
#[derive(Clone)]
pub struct TensorBytes {
    region: Arc<Region>,
    range: Range<usize>,
}

/// The bytes of one file.
#[derive(Debug)]
struct Region {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Map(Map),
    Memory(Vec<u8>),
}

impl Checkpoint {
    /// Opens a GGUF file. If it is one part of a split model, whichever, all parts are opened.
    ///
    /// # Errors
    /// The file or a part cannot be opened, is malformed (also: big-endian, version 1, a tensor of an unknown type),
    /// or the parts do not belong together.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (region, parsed) = load(path)?;
        let count = split::count(path, &parsed.pairs)?;
        match PartName::parse(path) {
            Some(name) if name.count > 1 && count.is_none() => Err(malformed(
                path,
                Flaw {
                    offset: 0,
                    place: Place::Key(split::COUNT_KEY.to_owned()),
                    problem: Problem::NotSplit { part: name.number, count: name.count },
                },
            )),
            Some(name) if count.is_some() => Self::open_parts(path, &name, region, parsed),
            _ => match count {
                Some((part, count)) if count > 1 => {
                    Err(Error::SplitName { file: path.to_owned(), part: part.saturating_add(1), count })
                }
                _ => Self::assemble(path, vec![(region, parsed)]),
            },
        }
    }

    /// Reads a GGUF file from memory. Errors call it `(memory)`.
    ///
    /// # Errors
    /// As [`open`](Self::open); a part of a split model is refused, for the other parts cannot be found.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        let path = Path::new("(memory)");
        let parsed = parse::parse(&bytes).map_err(|flaw| malformed(path, flaw))?;
        match split::count(path, &parsed.pairs)? {
            Some((part, count)) if count > 1 => {
                Err(Error::SplitName { file: path.to_owned(), part: part.saturating_add(1), count })
            }
            _ => {
                let region = Region { path: path.to_owned(), bytes: Bytes::Memory(bytes) };
                Self::assemble(path, vec![(region, parsed)])
            }
        }
    }

    /// Opens the parts beside `path`, which is open already.
    fn open_parts(path: &Path, name: &PartName, region: Region, parsed: Parsed) -> Result<Self, Error> {
        let mut opened = Some((region, parsed));
        let mut parts = Vec::new();
        for number in 1..=name.count {
            let (region, parsed) = match opened.take_if(|_| number == name.number) {
                Some(part) => part,
                None => load(&name.part(number)).map_err(|source| match source {
                    Error::Open { .. } | Error::NotAFile { .. } => Error::PartMissing {
                        file: path.to_owned(),
                        part: number,
                        count: name.count,
                        source: Box::new(source),
                    },
                    other => other,
                })?,
            };
            split::check_part(&region.path, &parsed.pairs, number, name.count)?;
            parts.push((region, parsed));
        }
        let found = parts.iter().map(|(_, parsed)| parsed.tensors.len()).sum();
        let (first, parsed) = &parts[0];
        split::check_tensors(&first.path, &parsed.pairs, found)?;
        Self::assemble(path, parts)
    }

    /// Joins the files; the first one's keys are the model's.
    fn assemble(path: &Path, parts: Vec<(Region, Parsed)>) -> Result<Self, Error> {
        let mut metadata = IndexMap::new();
        let mut tensors: Vec<Arc<TensorInfo>> = Vec::new();
        let mut by_name = HashMap::new();
        let mut files: Vec<Arc<Region>> = Vec::new();
        for (file, (region, parsed)) in parts.into_iter().enumerate() {
            if file == 0 {
                metadata = parsed.pairs;
            }
            for parse::Entry { name, format, shape, start, byte_len } in parsed.tensors {
                if let Some(other) = by_name.insert(name.clone(), tensors.len()) {
                    let other = files[tensors[other].file].path.clone();
                    return Err(Error::SplitDuplicate { file: region.path, other, name });
                }
                tensors.push(Arc::new(TensorInfo { name, format, shape, byte_len, file, start }));
            }
            files.push(Arc::new(region));
        }
        let metadata = Metadata::new(path, metadata);
        Ok(Self(Arc::new(Inner { path: path.to_owned(), metadata, tensors, by_name, files })))
    }

    /// The keys; those of the first part if the model is split.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// All tensors in the order of the table, part after part.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.0.tensors.iter().map(|info| &**info)
    }

    /// The tensor of this name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        let info = self.0.tensors[*self.0.by_name.get(name)?].clone();
        let range = info.start..info.start + info.byte_len;
        let bytes = TensorBytes { region: self.0.files[info.file].clone(), range };
        Some(Tensor { info, bytes })
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn require(&self, name: &str) -> Result<Tensor, Error> {
        self.tensor(name)
            .ok_or_else(|| Error::MissingTensor { file: self.0.path.clone(), name: name.to_owned() })
    }

    /// The path that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Bytes of all files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.0.files.iter().map(|file| file.bytes().len() as u64).sum()
    }

    /// Bytes of all tensors, without the padding between them.
    #[must_use]
    pub fn tensor_bytes(&self) -> u64 {
        self.0.tensors.iter().map(|info| info.byte_len as u64).sum()
    }

    /// Whether everything that was read through the maps so far really was in the files. To be asked after the bytes
    /// were used: a page that has gone reads as zeros.
    ///
    /// # Errors
    /// A file changed its length, or a page of it could not be read.
    pub fn check_intact(&self) -> Result<(), Error> {
        self.0.files.iter().try_for_each(|file| file.check())
    }
}

/// Maps and parses one file.
fn load(path: &Path) -> Result<(Region, Parsed), Error> {
    let open = |source| Error::Open { file: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(open)?.is_file() {
        return Err(Error::NotAFile { file: path.to_owned() });
    }
    let map = Map::open(path).map_err(open)?;
    let region = Region { path: path.to_owned(), bytes: Bytes::Map(map) };
    let parsed = parse::parse(region.bytes());
    // First, for a file that is cut while it is parsed reads as zeros, which would be called malformed.
    region.check()?;
    let parsed = parsed.map_err(|flaw| malformed(path, flaw))?;
    Ok((region, parsed))
}

fn malformed(path: &Path, flaw: Flaw) -> Error {
    let Flaw { offset, place, problem } = flaw;
    Error::Malformed { file: path.to_owned(), offset, place, problem: Box::new(problem) }
}

impl Region {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Map(map) => map.bytes(),
            Bytes::Memory(bytes) => bytes,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let Bytes::Map(map) = &self.bytes else { return Ok(()) };
        let file = self.path.clone();
        match map.check() {
            Ok(Health::Intact) => Ok(()),
            Ok(Health::Resized(found)) => {
                Err(Error::Truncated { file, expected: map.bytes().len() as u64, found })
            }
            Ok(Health::Faulted) => Err(Error::Unreadable { file }),
            Err(source) => Err(Error::Open { file, source }),
        }
    }
}

impl TensorBytes {
    /// Frees the memory that holds some of the bytes, where a file does too; who reads them again waits for the file.
    ///
    /// # Panics
    /// If the range lies outside.
    pub fn release(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len(), "a range of the tensor's bytes");
        if let Bytes::Map(map) = &self.region.bytes {
            map.release(self.range.start + range.start..self.range.start + range.end);
        }
    }
}

impl Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.region.bytes()[self.range.clone()]
    }
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for TensorBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {} of {}", self.range.len(), self.range.start, self.region.path.display())
    }
}
