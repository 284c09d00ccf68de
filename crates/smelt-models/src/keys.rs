//! Metadata keys under a family's prefix.

use crate::Error;
use smelt_checkpoint::{Checkpoint, Value};

/// Reads `<architecture>.<key>` of a checkpoint.
#[derive(Debug)]
pub struct Keys<'a> {
    checkpoint: &'a Checkpoint,
    architecture: &'a str,
}

impl<'a> Keys<'a> {
    /// The keys of a checkpoint under an architecture's name.
    #[must_use]
    pub fn new(checkpoint: &'a Checkpoint, architecture: &'a str) -> Self {
        Self { checkpoint, architecture }
    }

    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &'a Checkpoint {
        self.checkpoint
    }

    /// The whole key.
    #[must_use]
    pub fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// An error about a key.
    #[must_use]
    pub fn error(&self, key: &str, what: impl Into<String>) -> Error {
        Error::Key { file: self.checkpoint.path().into(), key: self.full(key), what: what.into() }
    }

    /// A count.
    ///
    /// # Errors
    /// If the value is no unsigned integer.
    pub fn count(&self, key: &str) -> Result<Option<usize>, Error> {
        Ok(self.checkpoint.metadata().u32(&self.full(key))?.map(|v| v as usize))
    }

    /// A count that must be there and not be zero.
    ///
    /// # Errors
    /// If it isn't.
    pub fn require_count(&self, key: &str) -> Result<usize, Error> {
        match self.checkpoint.metadata().require_u32(&self.full(key))? {
            0 => Err(self.error(key, "is 0")),
            v => Ok(v as usize),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// If the value is no finite float.
    pub fn float(&self, key: &str) -> Result<Option<f32>, Error> {
        match self.checkpoint.metadata().f32(&self.full(key))? {
            Some(v) if !v.is_finite() => Err(self.error(key, format!("is {v}"))),
            v => Ok(v),
        }
    }

    /// A number that must be there.
    ///
    /// # Errors
    /// If it isn't.
    pub fn require_float(&self, key: &str) -> Result<f32, Error> {
        self.float(key)?.ok_or_else(|| self.error(key, "is missing"))
    }

    /// A flag.
    ///
    /// # Errors
    /// If the value is no bool.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        Ok(self.checkpoint.metadata().bool(&self.full(key))?)
    }

    /// A string.
    ///
    /// # Errors
    /// If the value is no string.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        Ok(self.checkpoint.metadata().str(&self.full(key))?)
    }

    /// Layers of the model. A file has more tensors than layers, which bounds what a hostile count can cost.
    ///
    /// # Errors
    /// If the key is missing, 0, or more than the file's tensors.
    pub fn n_layers(&self) -> Result<usize, Error> {
        let n = self.require_count("block_count")?;
        let tensors = self.checkpoint.tensors().len();
        if n > tensors {
            return Err(self.error("block_count", format!("is {n}, but the file has {tensors} tensors")));
        }
        Ok(n)
    }

    /// One count per layer, from a single number or an array of them.
    ///
    /// # Errors
    /// If the key is missing or an array has another length than the model.
    pub fn count_per_layer(&self, key: &str, n_layers: usize) -> Result<Vec<usize>, Error> {
        let full = self.full(key);
        if !matches!(self.checkpoint.metadata().get(&full), Some(Value::Array(_))) {
            return Ok(vec![self.require_count(key)?; n_layers]);
        }
        let counts = self.checkpoint.metadata().u32_array(&full)?.unwrap_or_default();
        if counts.len() != n_layers {
            return Err(self.error(key, format!("has {} entries for {n_layers} layers", counts.len())));
        }
        if counts.contains(&0) {
            return Err(self.error(key, "has a layer of 0"));
        }
        Ok(counts.into_iter().map(|v| v as usize).collect())
    }

    /// An F32 vector stored as a tensor, if the file has it.
    ///
    /// # Errors
    /// If its length differs from `n`.
    pub fn vector(&self, name: &str, n: usize) -> Result<Option<Vec<f32>>, Error> {
        let Some(tensor) = self.checkpoint.tensor(name) else { return Ok(None) };
        if tensor.info.shape.iter().product::<usize>() != n {
            let (found, file) = (tensor.info.shape.clone(), self.checkpoint.path().into());
            return Err(Error::Shape { file, name: name.into(), found, expected: vec![n] });
        }
        let mut values = vec![0.0; n];
        (tensor.info.format.dequantize)(&tensor.bytes, &mut values);
        Ok(Some(values))
    }
}
