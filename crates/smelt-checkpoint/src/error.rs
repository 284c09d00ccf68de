//! What can be wrong with a model file, and where.

use std::fmt;
use std::path::PathBuf;

/// Everything that opening, reading or writing a checkpoint can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to open or map the file.
    #[error("{}: cannot open the model file: {source}", file.display())]
    Open { file: PathBuf, source: std::io::Error },

    /// The path names a directory, a pipe or a device.
    #[error("{}: not a regular file, so it cannot be mapped; give the path of a GGUF file", file.display())]
    NotAFile { file: PathBuf },

    /// The bytes are not a valid GGUF file.
    #[error("{}: byte {offset}: {place}: {problem}", file.display())]
    Malformed { file: PathBuf, offset: u64, place: Place, problem: Box<Problem> },

    /// One part of a split file cannot be opened.
    #[error(
        "{}: this model is split into {count} files and part {part} is missing: {source}; \
         put all parts into one directory", file.display()
    )]
    PartMissing { file: PathBuf, part: usize, count: usize, source: Box<Error> },

    /// The keys say that the file is one part of several, its name does not.
    #[error(
        "{}: the file says that it is part {part} of {count}, so its name must end in -{part:05}-of-{count:05}.gguf \
         for the other parts to be found; rename it", file.display()
    )]
    SplitName { file: PathBuf, part: u64, count: u64 },

    /// A `split.*` key contradicts the file's name or the other parts.
    #[error(
        "{}: key \"{key}\" is {found} but must be {expected}: the file was renamed or belongs to another model",
        file.display()
    )]
    SplitMismatch { file: PathBuf, key: &'static str, found: String, expected: String },

    /// Two parts hold a tensor of the same name.
    #[error("{}: tensor \"{name}\" is also in {}", file.display(), other.display())]
    SplitDuplicate { file: PathBuf, other: PathBuf, name: String },

    /// The file became shorter or longer after it was opened.
    #[error(
        "{}: the file changed while it was in use: it had {expected} bytes when it was opened and has {found} now; \
         load the model again", file.display()
    )]
    Truncated { file: PathBuf, expected: u64, found: u64 },

    /// Mapped bytes could not be read although the file's length is unchanged.
    #[error(
        "{}: a part of the file could not be read: the disk failed, or the file was cut and grew again; \
         check the disk and load the model again", file.display()
    )]
    Unreadable { file: PathBuf },

    /// A tensor that the model needs is not there.
    #[error("{}: tensor \"{name}\" is missing: the file is incomplete or of another architecture", file.display())]
    MissingTensor { file: PathBuf, name: String },

    /// A key that the model needs is not there.
    #[error("{}: key \"{key}\" is missing: the file is incomplete or of another architecture", file.display())]
    MissingKey { file: PathBuf, key: String },

    /// A key holds a value of another type than its meaning asks for.
    #[error("{}: key \"{key}\" must be {expected}, but holds {found}", file.display())]
    KeyType { file: PathBuf, key: String, expected: &'static str, found: String },

    /// An integer does not fit the type that its meaning asks for.
    #[error("{}: key \"{key}\" must be {expected}, but {found} does not fit", file.display())]
    KeyRange { file: PathBuf, key: String, expected: &'static str, found: i128 },

    /// A key or a tensor that no reader would take was to be written.
    #[error("cannot write this model: {place}: {problem}")]
    Unwritable { place: Place, problem: Box<Problem> },

    /// Tensor data came in another order than the tensors were planned in.
    #[error(
        "cannot write this model: data of tensor \"{found}\" came when it was the turn of \"{expected}\""
    )]
    WriteOrder { found: String, expected: String },

    /// A tensor's data is shorter or longer than its shape asks for.
    #[error("cannot write this model: tensor \"{name}\" takes {expected} bytes, not {found}")]
    WriteLength { name: String, expected: usize, found: usize },

    /// The stream that a model is written to failed.
    #[error("cannot write the model: {source}; is the disk full?")]
    Write { source: std::io::Error },
}

/// The part of the file that a problem is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Magic, version and the two counts.
    Header,
    /// The `n`-th key-value pair, whose key is not known yet.
    Pair(u64),
    /// The key-value pair of this key.
    Key(String),
    /// The `n`-th entry of the tensor table, whose name is not known yet.
    Entry(u64),
    /// This tensor.
    Tensor(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => write!(f, "header"),
            Self::Pair(n) => write!(f, "key number {n}"),
            Self::Key(key) => write!(f, "key {}", Quoted(key)),
            Self::Entry(n) => write!(f, "tensor number {n}"),
            Self::Tensor(name) => write!(f, "tensor {}", Quoted(name)),
        }
    }
}

/// A name from the file, with control characters escaped and cut to a length that fits a terminal line.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 80;
        match self.0.char_indices().nth(SHOWN) {
            None => write!(f, "{:?}", self.0),
            Some((cut, _)) => write!(f, "{:?}…", &self.0[..cut]),
        }
    }
}

/// What is wrong at a [`Place`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the file starts with {}, not with \"GGUF\": it is no GGUF file", found.escape_ascii())]
    Magic { found: [u8; 4] },
    #[error(
        "the file is big-endian (version {version}); Smelt reads little-endian GGUF only: fetch that variant, \
         or convert the file with gguf-convert-endian"
    )]
    BigEndian { version: u32 },
    #[error("GGUF version 1 is too old to be read (its lengths are 32-bit): convert the model again")]
    VersionOne,
    #[error(
        "GGUF version {found} is unknown: Smelt reads versions 2 and 3; a newer file needs a newer Smelt"
    )]
    Version { found: u32 },
    #[error(
        "{what} takes {need} bytes but the file has only {left} left: it is truncated or damaged; fetch it again"
    )]
    Short { what: &'static str, need: u64, left: u64 },
    #[error(
        "{count} {what} cannot fit into the {left} bytes that are left: the file is truncated or damaged"
    )]
    Count { what: &'static str, count: u64, left: u64 },
    #[error("the {what} is empty")]
    EmptyName { what: &'static str },
    #[error("the {what} is {len} bytes long; GGUF allows {limit}")]
    LongName { what: &'static str, len: u64, limit: u64 },
    #[error("{what} is not valid UTF-8 from its byte {valid} on")]
    Utf8 { what: &'static str, valid: usize },
    #[error("value type {id} is unknown: GGUF has types 0 to 12; the file is damaged or newer than Smelt")]
    ValueType { id: u32 },
    #[error("an array of arrays, which no GGUF reader takes")]
    NestedArray,
    #[error("a bool must be 0 or 1, not {found}")]
    Bool { found: u8 },
    #[error("appears twice")]
    Duplicate,
    #[error("the alignment must be a u32, not {found}")]
    AlignmentType { found: &'static str },
    #[error("the alignment must be a power of two, not {found}")]
    Alignment { found: u32 },
    #[error("{found} dimensions; GGUF allows at most {limit}")]
    Dimensions { found: usize, limit: u32 },
    #[error("dimension {index} is {found}; it must be between 1 and 2^63-1")]
    Dimension { index: usize, found: u64 },
    #[error("the shape {shape:?} has more values or bytes than 63 bits can count")]
    Size { shape: Vec<u64> },
    #[error("tensor type {id} is not one that Smelt reads: convert the model to another quantisation")]
    TensorType { id: u32 },
    #[error("rows of {found} values cannot be {format}, which packs {block_len} at a time")]
    RowLength { found: u64, format: &'static str, block_len: usize },
    #[error("the data offset {offset} is no multiple of the alignment {alignment}")]
    Misaligned { offset: u64, alignment: u64 },
    #[error("the data offset is {found}, but the data of the tensor before ends at {expected}: they {verb}")]
    Offset { found: u64, expected: u64, verb: &'static str },
    #[error(
        "the file name says part {part} of {count}, but the file has no such key: if it is whole, rename it; if it was \
         cut into pieces of bytes, join them in order (cat NAME-*-of-{count:05}.gguf > NAME.gguf)"
    )]
    NotSplit { part: usize, count: usize },
}
