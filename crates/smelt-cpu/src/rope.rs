//! Sines and cosines of rotations, for every position in use.

use crate::wide::{Wide, WideOp};
use smelt_backend::{Program, RopeStyle};

/// The rotations of one table at one magnitude.
#[derive(Debug)]
pub(crate) struct Rotations {
    table: usize,
    magnitude: f32,
    /// `[position][2][pairs]`: cosines, then sines, times the magnitude.
    values: Vec<f32>,
}

/// All rotations of a program.
#[derive(Debug, Default)]
pub(crate) struct RopeTables {
    tables: Vec<Vec<f32>>,
    rotations: Vec<Rotations>,
    positions: usize,
}

/// Positions that are computed at a time.
const GROWTH: usize = 512;

impl RopeTables {
    pub(crate) fn new(program: &Program) -> Self {
        Self { tables: program.ropes.clone(), ..Self::default() }
    }

    /// The index by which [`RopeTables::row`] finds a table at a magnitude.
    pub(crate) fn add(&mut self, table: usize, magnitude: f32) {
        if self.find(table, magnitude).is_none() {
            self.rotations.push(Rotations { table, magnitude, values: Vec::new() });
        }
    }

    fn find(&self, table: usize, magnitude: f32) -> Option<&Rotations> {
        self.rotations.iter().find(|r| r.table == table && r.magnitude.to_bits() == magnitude.to_bits())
    }

    /// Computes what is missing below `positions`.
    pub(crate) fn cover(&mut self, positions: usize) {
        if positions <= self.positions {
            return;
        }
        let end = positions.next_multiple_of(GROWTH);
        for rotations in &mut self.rotations {
            let table = &self.tables[rotations.table];
            rotations.values.reserve_exact((end - self.positions) * 2 * table.len());
            for position in self.positions..end {
                let angle = |inv_freq: &f32| position as f64 * f64::from(*inv_freq);
                let magnitude = rotations.magnitude;
                rotations.values.extend(table.iter().map(|f| angle(f).cos() as f32 * magnitude));
                rotations.values.extend(table.iter().map(|f| angle(f).sin() as f32 * magnitude));
            }
        }
        self.positions = end;
    }

    /// Cosines and sines at a position that is covered, of a table that was added.
    pub(crate) fn row(&self, table: usize, magnitude: f32, position: usize) -> (&[f32], &[f32]) {
        let rotations = self.find(table, magnitude).expect("added when the program was compiled");
        let pairs = self.tables[table].len();
        rotations.values[position * 2 * pairs..][..2 * pairs].split_at(pairs)
    }
}

/// Rotates heads in place.
pub(crate) struct Rotate<'a> {
    pub(crate) heads: &'a mut [f32],
    pub(crate) head_dim: usize,
    pub(crate) style: RopeStyle,
    /// Of each pair of a head, of which the first are rotated.
    pub(crate) cos: &'a [f32],
    pub(crate) sin: &'a [f32],
}

impl WideOp for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        let Self { heads, head_dim, style, cos, sin } = self;
        for head in heads.chunks_exact_mut(head_dim) {
            match style {
                RopeStyle::Interleaved => {
                    for (pair, (c, s)) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos.iter().zip(sin)) {
                        *pair = [pair[0] * c - pair[1] * s, pair[0] * s + pair[1] * c];
                    }
                }
                RopeStyle::Halves => halves(w, head, cos, sin),
            }
        }
    }
}

/// Rotates the pairs of a head whose first values come first, then the second ones.
#[inline(always)]
fn halves<W: Wide>(w: W, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let rotate = |a, b, c, s| (w.sub(w.mul(a, c), w.mul(b, s)), w.add(w.mul(a, s), w.mul(b, c)));
    let (first, second) = head[..2 * cos.len()].split_at_mut(cos.len());
    let (a, a_rest) = first.as_chunks_mut::<16>();
    let (b, b_rest) = second.as_chunks_mut::<16>();
    let (c, c_rest) = cos.as_chunks::<16>();
    let (s, s_rest) = sin.as_chunks::<16>();
    for ((a, b), (c, s)) in a.iter_mut().zip(b).zip(c.iter().zip(s)) {
        let (x, y) = rotate(w.load(a), w.load(b), w.load(c), w.load(s));
        w.store(x, a);
        w.store(y, b);
    }
    if !c_rest.is_empty() {
        let (x, y) =
            rotate(w.load_part(a_rest), w.load_part(b_rest), w.load_part(c_rest), w.load_part(s_rest));
        w.store_part(x, a_rest);
        w.store_part(y, b_rest);
    }
}
