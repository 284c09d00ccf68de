//! Metadata values: GGUF's thirteen types.

/// GGUF's id of `Value::Array`.
pub(crate) const ARRAY: u32 = 9;

/// Makes all that differs from type to type by no more than its id, its name and Rust's type.
macro_rules! types {
    ($($id:literal $name:literal $variant:ident $rust:ty,)*) => {
        /// The value of one key.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Value {
            $($variant($rust),)*
            Array(Array),
        }

        /// The values of an array; GGUF arrays have one type, and Smelt reads no arrays of arrays.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Array {
            $($variant(Vec<$rust>),)*
        }

        impl Value {
            /// GGUF's type id.
            #[must_use]
            pub fn type_id(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $id,)*
                    Self::Array(_) => ARRAY,
                }
            }
        }

        impl Array {
            /// GGUF's type id of the elements.
            #[must_use]
            pub fn type_id(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $id,)*
                }
            }

            /// How many elements there are.
            #[must_use]
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$variant(values) => values.len(),)*
                }
            }
        }

        $(
            impl From<$rust> for Value {
                fn from(value: $rust) -> Self {
                    Self::$variant(value)
                }
            }

            impl From<Vec<$rust>> for Value {
                fn from(values: Vec<$rust>) -> Self {
                    Self::Array(Array::$variant(values))
                }
            }
        )*

        /// The name of a GGUF type id.
        pub(crate) fn type_name(id: u32) -> &'static str {
            match id {
                $($id => $name,)*
                ARRAY => "array",
                _ => "unknown",
            }
        }
    };
}

types! {
    0 "u8" U8 u8,
    1 "i8" I8 i8,
    2 "u16" U16 u16,
    3 "i16" I16 i16,
    4 "u32" U32 u32,
    5 "i32" I32 i32,
    6 "f32" F32 f32,
    7 "bool" Bool bool,
    8 "string" String String,
    10 "u64" U64 u64,
    11 "i64" I64 i64,
    12 "f64" F64 f64,
}

impl Value {
    /// The type's name as it stands in messages: `u32`, `string`, `array of f32`.
    #[must_use]
    pub fn type_name(&self) -> String {
        match self {
            Self::Array(array) => format!("array of {}", array.type_name()),
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
    /// The elements' type as it stands in messages: `u32`, `string`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        type_name(self.type_id())
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

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}
