//! The prefix tree: which pages hold the keys and values of which tokens.
//!
//! A node is a page and the tokens in it; the way to it from the root is all that stands before them. Inner nodes are
//! full pages. A leaf may be a part of one, which is never shared but copied.
//!
//! Children are sorted by their tokens and none begins another, so the child with the longest common beginning is a
//! neighbour of where the wanted tokens would stand.

use smelt_backend::PAGE_TOKENS;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A node's place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(u32);

impl NodeId {
    /// Where every sequence begins.
    pub(super) const ROOT: Self = Self(0);

    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Default)]
struct Node {
    parent: u32,
    tokens: Box<[u32]>,
    page: u32,
    children: BTreeMap<Box<[u32]>, NodeId>,
    /// When it was last used, as a count of uses.
    used: u64,
}

/// What the tree has of a list of tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Whole pages, from the first on, with the node of the last.
    pub(super) pages: Vec<u32>,
    pub(super) node: Option<NodeId>,
    /// A page of whose tokens the first so many come next.
    pub(super) part: Option<(u32, usize)>,
}

/// What became of a page that was to enter the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Insert {
    /// It is in.
    New(NodeId),
    /// It is in, and this page, which it covers, is out.
    Instead(NodeId, u32),
    /// The tree has its tokens already, in this page.
    Known(NodeId, u32),
}

/// The tree.
#[derive(Debug)]
pub(super) struct Radix {
    nodes: Vec<Node>,
    vacant: Vec<NodeId>,
    /// Nodes without children, those first that were not used for longest.
    leaves: BTreeSet<(u64, NodeId)>,
    uses: u64,
}

impl Default for Radix {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], vacant: Vec::new(), leaves: BTreeSet::new(), uses: 0 }
    }
}

impl Radix {
    /// Pages in the tree.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - 1 - self.vacant.len()
    }

    /// The longest beginning of `tokens` that the tree has.
    pub(super) fn find(&mut self, tokens: &[u32]) -> Found {
        let mut found = Found::default();
        let mut node = NodeId::ROOT;
        let mut rest = tokens;
        while let Some((page, behind)) = rest.split_at_checked(PAGE_TOKENS) {
            let Some(child) = self.nodes[node.index()].children.get(page).copied() else { break };
            node = child;
            rest = behind;
            self.touch(node);
            found.pages.push(self.nodes[node.index()].page);
            found.node = Some(node);
        }
        if let Some((child, same)) = self.nearest(node, rest) {
            self.touch(child);
            found.part = Some((self.nodes[child.index()].page, same));
        }
        found
    }

    /// The child that shares most with `tokens`, and how many tokens it shares.
    fn nearest(&self, node: NodeId, tokens: &[u32]) -> Option<(NodeId, usize)> {
        let children = &self.nodes[node.index()].children;
        let before = children.range::<[u32], _>((Bound::Unbounded, Bound::Excluded(tokens))).next_back();
        let behind = children.range::<[u32], _>((Bound::Included(tokens), Bound::Unbounded)).next();
        let same = |key: &[u32]| key.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let neighbours = before.into_iter().chain(behind).map(|(key, child)| (*child, same(key)));
        let nearest = neighbours.max_by_key(|(_, same)| *same);
        nearest.filter(|(_, same)| *same > 0)
    }

    /// Adds the page that holds `tokens` (a page of them, or fewer) behind `parent`.
    pub(super) fn insert(&mut self, parent: NodeId, tokens: &[u32], page: u32) -> Insert {
        let children = &self.nodes[parent.index()].children;
        let behind = children.range::<[u32], _>((Bound::Included(tokens), Bound::Unbounded)).next();
        if let Some((_, child)) = behind.filter(|(key, _)| key.starts_with(tokens)) {
            let child = *child;
            self.touch(child);
            return Insert::Known(child, self.nodes[child.index()].page);
        }
        let before = children.range::<[u32], _>((Bound::Unbounded, Bound::Excluded(tokens))).next_back();
        let covered = before.filter(|(key, _)| tokens.starts_with(key)).map(|(_, child)| *child);
        let covered = covered.map(|child| self.remove(child));
        if parent != NodeId::ROOT {
            self.leaves.remove(&(self.nodes[parent.index()].used, parent));
        }
        self.uses += 1;
        let node = Node {
            parent: parent.0,
            tokens: tokens.into(),
            page,
            children: BTreeMap::new(),
            used: self.uses,
        };
        let id = match self.vacant.pop() {
            Some(id) => {
                self.nodes[id.index()] = node;
                id
            }
            None => {
                self.nodes.push(node);
                NodeId(self.nodes.len() as u32 - 1)
            }
        };
        self.leaves.insert((self.uses, id));
        self.nodes[parent.index()].children.insert(tokens.into(), id);
        covered.map_or(Insert::New(id), |page| Insert::Instead(id, page))
    }

    /// Takes out the page that was not used for longest among those that no other depends on and `may_go`.
    pub(super) fn evict(&mut self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let leaves = self.leaves.iter().map(|(_, leaf)| *leaf);
        let oldest = leaves.into_iter().find(|leaf| may_go(self.nodes[leaf.index()].page))?;
        Some(self.remove(oldest))
    }

    /// Removes a leaf; gives its page.
    fn remove(&mut self, leaf: NodeId) -> u32 {
        let Node { parent, tokens, page, used, .. } = std::mem::take(&mut self.nodes[leaf.index()]);
        self.leaves.remove(&(used, leaf));
        self.vacant.push(leaf);
        let parent = NodeId(parent);
        let above = &mut self.nodes[parent.index()];
        above.children.remove(&tokens);
        if above.children.is_empty() && parent != NodeId::ROOT {
            self.leaves.insert((above.used, parent));
        }
        page
    }

    fn touch(&mut self, node: NodeId) {
        self.uses += 1;
        let entry = &mut self.nodes[node.index()];
        let before = std::mem::replace(&mut entry.used, self.uses);
        if self.leaves.remove(&(before, node)) {
            self.leaves.insert((self.uses, node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(first: u32, changed: usize) -> Vec<u32> {
        (0..PAGE_TOKENS).map(|i| if i < changed { first } else { first + 1 }).collect()
    }

    fn new(insert: Insert) -> NodeId {
        match insert {
            Insert::New(node) => node,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_longest_beginning_is_found() {
        let mut tree = Radix::default();
        let (a, b) = (page(1, 32), page(5, 32));
        let first = new(tree.insert(NodeId::ROOT, &a, 10));
        let second = new(tree.insert(first, &b, 11));
        new(tree.insert(second, &[7, 8, 9], 12));
        let all = [&a[..], &b, &[7, 8, 9, 9]].concat();
        let found = tree.find(&all);
        assert_eq!((found.pages.as_slice(), found.part), (&[10, 11][..], Some((12, 3))));
        let found = tree.find(&all[..40]);
        assert_eq!((found.pages.as_slice(), found.part), (&[10][..], Some((11, 8))));
        assert_eq!(tree.find(&page(1, 20)).part, Some((10, 20)));
        assert_eq!(tree.find(&[2]), Found::default());
        assert_eq!(tree.find(&[]), Found::default());
    }

    #[test]
    fn what_a_page_covers_goes() {
        let mut tree = Radix::default();
        let short = new(tree.insert(NodeId::ROOT, &[1, 2], 0));
        assert_eq!(tree.insert(NodeId::ROOT, &[1], 1), Insert::Known(short, 0));
        let Insert::Instead(long, 0) = tree.insert(NodeId::ROOT, &[1, 2, 3], 2) else { panic!() };
        assert_eq!(tree.insert(NodeId::ROOT, &[1, 2, 3], 3), Insert::Known(long, 2));
        new(tree.insert(NodeId::ROOT, &[1, 3], 4));
        assert_eq!(tree.len(), 2);
    }

    #[test]
    fn the_oldest_leaf_goes_first_and_then_what_it_hung_on() {
        let mut tree = Radix::default();
        let root = new(tree.insert(NodeId::ROOT, &page(1, 32), 0));
        new(tree.insert(root, &page(2, 32), 1));
        new(tree.insert(root, &page(4, 32), 2));
        tree.find(&[page(1, 32), page(2, 32)].concat());
        assert_eq!(tree.evict(|page| page != 1), Some(2));
        assert_eq!(tree.evict(|_| true), Some(1));
        assert_eq!(tree.evict(|_| true), Some(0));
        assert_eq!((tree.evict(|_| true), tree.len()), (None, 0));
    }
}
