//! Where weights lie: in the file's map, in a copy on large pages, or in a copy for each memory node.

use crate::memory::Buffer;
use crate::pool::Pool;
use crate::topology::{Node, current_cpu, prefer};
use smelt_backend::{Error, Owner, WeightBytes};
use std::collections::hash_map::{Entry, HashMap};
use std::io;
use std::ops::Index;
use std::sync::Arc;

/// What to do on machines with several memory nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numa {
    /// The system's way: a page goes to the node of the thread that touches it first.
    #[default]
    Off,
    /// Pages go to all nodes in turn: those of buffers, of copies, and of files that are not in memory yet.
    Interleave,
    /// Every node has a copy of the weights, which the threads that run on it read.
    Mirror,
}

impl Numa {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Off, Self::Interleave, Self::Mirror];

    /// The name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Interleave => "interleave",
            Self::Mirror => "mirror",
        }
    }
}

/// Whether weights are copied to memory that is faster to read than the file's map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repack {
    /// As is best: from the map, because the kernels read files' blocks as they are.
    #[default]
    Auto,
    /// From the map.
    Off,
    /// To memory on large pages, as many bytes as the file has. The layout stays.
    On,
}

impl Repack {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Off, Self::On];

    /// The name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::On => "on",
        }
    }
}

/// What was chosen of the two, in words.
pub(crate) fn describe(numa: Numa, repack: Repack, nodes: usize) -> String {
    let weights = match (numa, repack) {
        (Numa::Mirror, _) => "weights copied to each memory node",
        (_, Repack::On) => "weights copied to large pages",
        (_, Repack::Off) => "weights in the file's map",
        (_, Repack::Auto) => {
            "weights in the file's map, no repacking: kernels read files' blocks as they are"
        }
    };
    match numa {
        Numa::Off => weights.into(),
        Numa::Interleave => format!("{weights}, memory interleaved over {}", count(nodes)),
        Numa::Mirror => format!(
            "{weights}, of which there {}",
            if nodes == 1 { "is 1".into() } else { format!("are {nodes}") }
        ),
    }
}

fn count(nodes: usize) -> String {
    if nodes == 1 { "1 node".into() } else { format!("{nodes} nodes") }
}

/// The weights, by index, as the calling thread reads them.
#[derive(Debug)]
pub(crate) struct Weights {
    /// One set, or one for each node.
    copies: Vec<Vec<WeightBytes>>,
    nodes: Vec<Node>,
}

impl Weights {
    /// Places the weights as asked.
    ///
    /// # Errors
    /// If there is no memory for a copy, or the system refuses to place it.
    pub(crate) fn place(
        weights: Vec<WeightBytes>,
        numa: Numa,
        repack: Repack,
        nodes: &[Node],
        pool: &Pool,
    ) -> Result<Self, Error> {
        let copies = match (numa, repack) {
            (Numa::Mirror, _) => {
                nodes.iter().map(|node| copy(&weights, Some(node), pool)).collect::<Result<_, _>>()?
            }
            (_, Repack::On) => vec![copy(&weights, None, pool)?],
            (_, Repack::Auto | Repack::Off) => vec![weights],
        };
        Ok(Self { copies, nodes: nodes.to_vec() })
    }

    /// Whether threads on other nodes read other copies.
    pub(crate) fn are_mirrored(&self) -> bool {
        self.copies.len() > 1
    }

    /// The set for a thread on this CPU.
    fn on(&self, cpu: usize) -> &[WeightBytes] {
        let node = self.nodes.iter().position(|node| node.cpus.contains(&cpu)).unwrap_or(0);
        &self.copies[node]
    }
}

impl Index<usize> for Weights {
    type Output = WeightBytes;

    fn index(&self, weight: usize) -> &WeightBytes {
        let set = if let [only] = &self.copies[..] { only } else { self.on(current_cpu()) };
        &set[weight]
    }
}

/// Bytes that a thread copies before it gives back the memory of what they came from: so little stands twice in memory.
const COPIED: usize = 4 << 20;

/// A copy of all weights, on `node` if one is given. Weights that share bytes share those of the copy.
fn copy(weights: &[WeightBytes], node: Option<&Node>, pool: &Pool) -> Result<Vec<WeightBytes>, Error> {
    let mut copies: HashMap<(*const u8, usize), WeightBytes> = HashMap::new();
    let mut all = Vec::with_capacity(weights.len());
    for weight in weights {
        let copy = match copies.entry((weight.as_ptr(), weight.len())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(copy_one(weight, node, pool)?),
        };
        all.push(copy.clone());
    }
    Ok(all)
}

fn copy_one(weight: &WeightBytes, node: Option<&Node>, pool: &Pool) -> Result<WeightBytes, Error> {
    let mut buffer = Buffer::<u8>::new("the copy of the weights", Some(weight.len()))?;
    // Only a wish: without large pages the copy is as good as the map.
    buffer.want_large_pages();
    if let Some(node) = node.filter(|_| !weight.is_empty()) {
        prefer(buffer.as_mut_slice(), node).map_err(|error| refused("memory nodes", &error))?;
    }
    let bytes = buffer.share();
    // The system clears each page first, which takes longer than the copy.
    pool.chunks(weight.len().div_ceil(COPIED), |_, part| {
        let part = part * COPIED..((part + 1) * COPIED).min(weight.len());
        // SAFETY: the buffer outlives the region, and the part is this chunk's.
        unsafe { bytes.slice_mut(part.clone()) }.copy_from_slice(&weight[part.clone()]);
        weight.slice(part).release();
    });
    Ok(WeightBytes::new(Arc::new(Owned(buffer)), 0..weight.len()))
}

/// The system's refusal of what was asked for.
pub(crate) fn refused(what: &str, error: &io::Error) -> Error {
    let what = format!("the system refuses to place memory on {what} ({error}); use no --numa");
    Error::Unsupported { backend: "cpu".into(), what }
}

/// A buffer as the owner of weights.
struct Owned(Buffer<u8>);

impl Owner for Owned {
    fn bytes(&self) -> &[u8] {
        self.0.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;
    use std::sync::Mutex;

    fn weights() -> Vec<WeightBytes> {
        let file = WeightBytes::from((0..=255).collect::<Vec<u8>>());
        vec![file.slice(0..100), file.slice(100..256), file.slice(0..100), file.slice(0..0)]
    }

    fn same(a: &[WeightBytes], b: &[WeightBytes]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| **a == **b)
    }

    fn pool() -> Pool {
        Pool::new(2, false).unwrap()
    }

    /// Two nodes as the kernels see them; for the system both are the one that every machine has.
    fn two_nodes() -> Vec<Node> {
        [vec![0, 2], vec![1, 3]].map(|cpus| Node { id: 0, cpus }).to_vec()
    }

    #[test]
    fn weights_stay_where_they_are_unless_a_copy_is_asked_for() {
        for (numa, repack) in
            [(Numa::Off, Repack::Auto), (Numa::Off, Repack::Off), (Numa::Interleave, Repack::Auto)]
        {
            let before = weights();
            let placed = Weights::place(before.clone(), numa, repack, &two_nodes(), &pool()).unwrap();
            assert!((0..before.len()).all(|i| std::ptr::eq(&*placed[i], &*before[i])));
        }
    }

    #[test]
    fn copies_hold_the_same_bytes_and_share_what_was_shared() {
        let placed = Weights::place(weights(), Numa::Off, Repack::On, &two_nodes(), &pool()).unwrap();
        assert!(same(&placed.copies[0], &weights()));
        assert_eq!(placed[0].as_ptr(), placed[2].as_ptr());
        assert_ne!(placed[0].as_ptr(), placed[1].as_ptr());
    }

    /// An owner that notes what it may forget.
    struct Noting(Vec<u8>, Mutex<Vec<Range<usize>>>);

    impl Owner for Noting {
        fn bytes(&self) -> &[u8] {
            &self.0
        }

        fn release(&self, range: Range<usize>) {
            self.1.lock().unwrap().push(range);
        }
    }

    #[test]
    fn what_is_copied_is_released_part_by_part() {
        const LEN: usize = 2 * COPIED + 77;
        let owner = Arc::new(Noting((0..=255).cycle().take(LEN).collect(), Mutex::default()));
        let weight = WeightBytes::new(owner.clone(), 5..LEN);
        let placed = Weights::place(vec![weight.clone()], Numa::Off, Repack::On, &[], &pool()).unwrap();
        assert!(*placed[0] == *weight);
        let mut released = owner.1.lock().unwrap().clone();
        released.sort_by_key(|range| range.start);
        assert_eq!(released, [5..COPIED + 5, COPIED + 5..2 * COPIED + 5, 2 * COPIED + 5..LEN]);
    }

    #[test]
    fn every_cpu_reads_its_nodes_copy() {
        let nodes = two_nodes();
        let placed = match Weights::place(weights(), Numa::Mirror, Repack::Auto, &nodes, &pool()) {
            Ok(placed) => placed,
            // A container may forbid to place memory, and then says so.
            Err(error) => return assert!(error.to_string().contains("refuses to place memory"), "{error}"),
        };
        assert_eq!(placed.copies.len(), 2);
        assert!(placed.copies.iter().all(|copy| same(copy, &weights())));
        for (cpu, node) in [(0, 0), (1, 1), (2, 0), (3, 1), (77, 0)] {
            assert!(std::ptr::eq(placed.on(cpu), &placed.copies[node][..]), "CPU {cpu}");
        }
    }
}
