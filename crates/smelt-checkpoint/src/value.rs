//! Metadata values: GGUF's thirteen types.

/// The value of one key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// The values of an array; GGUF arrays have one type, and Smelt reads no arrays of arrays.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// GGUF's id of `Value::Array`.
pub(crate) const ARRAY: u32 = 9;

impl Value {
    /// GGUF's type id.
    #[must_use]
    pub fn type_id(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(_) => ARRAY,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    /// The type's name as it stands in messages: `u32`, `string`, `array of f32`.
    #[must_use]
    pub fn type_name(&self) -> String {
        match self {
            Self::Array(array) => format!("array of {}", type_name(array.type_id())),
            other => type_name(other.type_id()).to_owned(),
        }
    }

    /// The value of any integer type.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }
}

impl Array {
    /// GGUF's type id of the elements.
    #[must_use]
    pub fn type_id(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of an array of any integer type.
    #[must_use]
    pub fn as_integers(&self) -> Option<Vec<i128>> {
        fn wide<T: Copy + Into<i128>>(v: &[T]) -> Vec<i128> {
            v.iter().map(|&x| x.into()).collect()
        }
        Some(match self {
            Self::U8(v) => wide(v),
            Self::I8(v) => wide(v),
            Self::U16(v) => wide(v),
            Self::I16(v) => wide(v),
            Self::U32(v) => wide(v),
            Self::I32(v) => wide(v),
            Self::U64(v) => wide(v),
            Self::I64(v) => wide(v),
            _ => return None,
        })
    }
}

macro_rules! from_rust {
    ($($variant:ident $scalar:ty),*) => {$(
        impl From<$scalar> for Value {
            fn from(value: $scalar) -> Self {
                Self::$variant(value)
            }
        }

        impl From<Vec<$scalar>> for Value {
            fn from(values: Vec<$scalar>) -> Self {
                Self::Array(Array::$variant(values))
            }
        }
    )*};
}

from_rust!(U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, F32 f32, Bool bool, String String, U64 u64, I64 i64, F64 f64);

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

/// The name of a GGUF type id.
pub(crate) fn type_name(id: u32) -> &'static str {
    const NAMES: [&str; 13] =
        ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
    usize::try_from(id).ok().and_then(|id| NAMES.get(id)).copied().unwrap_or("unknown")
}
