//! The keys of a checkpoint, with getters that say what is wrong.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::{Array, Error, Value};

/// Keys and values in the order of the file.
#[derive(Debug, Clone)]
pub struct Metadata {
    file: Arc<Path>,
    entries: IndexMap<String, Value>,
}

impl Metadata {
    /// Metadata of `file`, which the errors of the getters name.
    #[must_use]
    pub fn new(file: &Path, entries: IndexMap<String, Value>) -> Self {
        Self { file: file.into(), entries }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// All keys and values in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A value of any integer type that fits; `None` if the key is absent.
    ///
    /// # Errors
    /// The key holds something else, or an integer that does not fit. So do the other getters.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.integer(key, "a u32")
    }

    /// As [`u32`](Self::u32), of 64 bits.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.integer(key, "a u64")
    }

    /// As [`u32`](Self::u32), signed.
    pub fn i32(&self, key: &str) -> Result<Option<i32>, Error> {
        self.integer(key, "an i32")
    }

    /// An f32, or an f64 rounded to one.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "an f32", |value| match value {
            Value::F32(v) => Some(*v),
            #[expect(clippy::cast_possible_truncation, reason = "rounding is what the caller asks for")]
            Value::F64(v) => Some(*v as f32),
            _ => None,
        })
    }

    /// A bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "a bool", |value| match value {
            Value::Bool(v) => Some(*v),
            _ => None,
        })
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.typed(key, "a string", |value| match value {
            Value::String(v) => Some(v.as_str()),
            _ => None,
        })
    }

    /// An array of strings.
    pub fn str_array(&self, key: &str) -> Result<Option<&[String]>, Error> {
        self.array(key, "an array of strings", |array| match array {
            Array::String(v) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of f32.
    pub fn f32_array(&self, key: &str) -> Result<Option<&[f32]>, Error> {
        self.array(key, "an array of f32", |array| match array {
            Array::F32(v) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of bools.
    pub fn bool_array(&self, key: &str) -> Result<Option<&[bool]>, Error> {
        self.array(key, "an array of bools", |array| match array {
            Array::Bool(v) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of any integer type whose values all fit.
    pub fn u32_array(&self, key: &str) -> Result<Option<Vec<u32>>, Error> {
        self.integer_array(key, "an array of u32")
    }

    /// An array of any integer type whose values all fit.
    pub fn i32_array(&self, key: &str) -> Result<Option<Vec<i32>>, Error> {
        self.integer_array(key, "an array of i32")
    }

    /// As [`u32`](Self::u32), and an error if the key is absent.
    pub fn require_u32(&self, key: &str) -> Result<u32, Error> {
        self.present(key, self.u32(key)?)
    }

    /// As [`f32`](Self::f32), and an error if the key is absent.
    pub fn require_f32(&self, key: &str) -> Result<f32, Error> {
        self.present(key, self.f32(key)?)
    }

    /// As [`str`](Self::str), and an error if the key is absent.
    pub fn require_str(&self, key: &str) -> Result<&str, Error> {
        self.present(key, self.str(key)?)
    }

    /// As [`str_array`](Self::str_array), and an error if the key is absent.
    pub fn require_str_array(&self, key: &str) -> Result<&[String], Error> {
        self.present(key, self.str_array(key)?)
    }

    fn present<T>(&self, key: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| Error::MissingKey { file: self.file.to_path_buf(), key: key.to_owned() })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| Error::KeyType {
            file: self.file.to_path_buf(),
            key: key.to_owned(),
            expected,
            found: value.type_name(),
        })
    }

    fn array<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Array) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.typed(key, expected, |value| match value {
            Value::Array(array) => read(array),
            _ => None,
        })
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, expected: &'static str) -> Result<Option<T>, Error> {
        let Some(value) = self.typed(key, expected, Value::as_integer)? else { return Ok(None) };
        self.fit(key, expected, value).map(Some)
    }

    fn integer_array<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<Vec<T>>, Error> {
        let Some(values) = self.array(key, expected, Array::as_integers)? else { return Ok(None) };
        values.into_iter().map(|value| self.fit(key, expected, value)).collect::<Result<_, _>>().map(Some)
    }

    fn fit<T: TryFrom<i128>>(&self, key: &str, expected: &'static str, value: i128) -> Result<T, Error> {
        T::try_from(value).map_err(|_| Error::KeyRange {
            file: self.file.to_path_buf(),
            key: key.to_owned(),
            expected,
            found: value,
        })
    }
}
