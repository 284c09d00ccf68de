//! Tensors of a checkpoint become weights of a program, with every shape checked.

use crate::Error;
use smelt_backend::{Owner, Program, Weight, WeightBytes, WeightSpec};
use smelt_checkpoint::{Checkpoint, Tensor, TensorBytes};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Tensors that [`crate::rope::from_keys`] reads.
const ROPE_TENSORS: &[&str] = &["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];

/// Binds tensors by name and remembers which were used.
pub(crate) struct Tensors<'a> {
    checkpoint: &'a Checkpoint,
    pub(crate) weights: Vec<WeightBytes>,
    bound: HashMap<String, Weight>,
    used: HashSet<String>,
}

impl<'a> Tensors<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint) -> Self {
        let used = ROPE_TENSORS.iter().map(|n| (*n).to_owned()).collect();
        Self { checkpoint, weights: Vec::new(), bound: HashMap::new(), used }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.checkpoint.tensor(name).is_some()
    }

    /// A tensor whose shape must be `shape` (fastest first); trailing ones don't count.
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, Error> {
        let tensor = self.checkpoint.require(name)?;
        let trim = |s: &[usize]| s.iter().rposition(|n| *n != 1).map_or(0, |i| i + 1);
        let found = &tensor.info.shape;
        if found[..trim(found)] != shape[..trim(shape)] {
            let file = self.checkpoint.path().into();
            let expected = shape[..trim(shape)].to_vec();
            return Err(Error::Shape { file, name: name.into(), found: found.clone(), expected });
        }
        self.used.insert(name.into());
        Ok(tensor)
    }

    fn bind(&mut self, program: &mut Program, key: String, spec: WeightSpec, bytes: WeightBytes) -> Weight {
        self.weights.push(bytes);
        let weight = program.weight(spec);
        self.bound.insert(key, weight);
        weight
    }

    /// Stacked matrices, `n_experts × n_out × n_in`.
    pub(crate) fn stacked(
        &mut self,
        program: &mut Program,
        name: &str,
        (n_experts, n_out, n_in): (usize, usize, usize),
    ) -> Result<Weight, Error> {
        if let Some(weight) = self.bound.get(name) {
            return Ok(*weight);
        }
        let tensor = self.tensor(name, &[n_in, n_out, n_experts])?;
        let spec = WeightSpec { name: name.into(), format: tensor.info.format, n_in, n_out, n_experts };
        Ok(self.bind(program, name.into(), spec, view(&tensor)))
    }

    /// A matrix, `n_out × n_in`.
    pub(crate) fn matrix(
        &mut self,
        program: &mut Program,
        name: &str,
        (n_out, n_in): (usize, usize),
    ) -> Result<Weight, Error> {
        self.stacked(program, name, (1, n_out, n_in))
    }

    /// Some rows of a matrix of `n_out × n_in`: one part of a fused tensor.
    pub(crate) fn rows(
        &mut self,
        program: &mut Program,
        name: &str,
        (n_out, n_in): (usize, usize),
        rows: Range<usize>,
    ) -> Result<Weight, Error> {
        let tensor = self.tensor(name, &[n_in, n_out])?;
        let row_bytes = tensor.bytes.len() / n_out;
        let bytes = view(&tensor).slice(rows.start * row_bytes..rows.end * row_bytes);
        let key = format!("{name}[{}..{}]", rows.start, rows.end);
        let spec = WeightSpec {
            name: key.clone(),
            format: tensor.info.format,
            n_in,
            n_out: rows.len(),
            n_experts: 1,
        };
        Ok(self.bind(program, key, spec, bytes))
    }

    /// A vector of `n` values; one stored in another format is decoded, since vectors are small.
    pub(crate) fn vector(&mut self, program: &mut Program, name: &str, n: usize) -> Result<Weight, Error> {
        self.part(program, name, n, 0..n)
    }

    /// Part of a vector of `n` values.
    pub(crate) fn part(
        &mut self,
        program: &mut Program,
        name: &str,
        n: usize,
        range: Range<usize>,
    ) -> Result<Weight, Error> {
        let tensor = self.tensor(name, &[n])?;
        let mut values = vec![0.0; n];
        (tensor.info.format.dequantize)(&tensor.bytes, &mut values);
        let bytes: Vec<u8> = values[range.clone()].iter().flat_map(|v| v.to_le_bytes()).collect();
        let format = smelt_quant::by_name("F32").expect("every build has F32");
        let spec = WeightSpec { name: name.into(), format, n_in: range.len(), n_out: 1, n_experts: 1 };
        Ok(self.bind(program, format!("{name}[{}..{}]", range.start, range.end), spec, bytes.into()))
    }

    /// Fails if the checkpoint has tensors that nothing used: a graph without them would be another model.
    pub(crate) fn finish(self, architecture: &str) -> Result<Vec<WeightBytes>, Error> {
        let unused: Vec<&str> =
            self.checkpoint.tensors().map(|t| t.name.as_str()).filter(|n| !self.used.contains(*n)).collect();
        if unused.is_empty() {
            return Ok(self.weights);
        }
        let names = unused.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        Err(Error::UnusedTensors {
            file: self.checkpoint.path().into(),
            architecture: architecture.into(),
            count: unused.len(),
            names,
        })
    }
}

/// A tensor's bytes in its file.
struct InFile(TensorBytes);

impl Owner for InFile {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn release(&self, range: Range<usize>) {
        self.0.release(range);
    }
}

fn view(tensor: &Tensor) -> WeightBytes {
    let range = 0..tensor.bytes.len();
    WeightBytes::new(Arc::new(InFile(tensor.bytes.clone())), range)
}
