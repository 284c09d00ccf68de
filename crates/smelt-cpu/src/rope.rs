//! Sines and cosines of rotations, for every position in use.

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

/// Rotates one head in place.
pub(crate) fn rotate(head: &mut [f32], style: RopeStyle, cos: &[f32], sin: &[f32]) {
    match style {
        RopeStyle::Interleaved => {
            for (pair, (c, s)) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos.iter().zip(sin)) {
                *pair = [pair[0] * c - pair[1] * s, pair[0] * s + pair[1] * c];
            }
        }
        RopeStyle::Halves => {
            let (first, rest) = head.split_at_mut(cos.len());
            for ((a, b), (c, s)) in first.iter_mut().zip(rest).zip(cos.iter().zip(sin)) {
                (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
            }
        }
    }
}
