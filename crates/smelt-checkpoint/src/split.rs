//! The names and keys of split files: `NAME-00001-of-00003.gguf`.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::{Error, Metadata, Value};

pub(crate) const NUMBER_KEY: &str = "split.no";
pub(crate) const COUNT_KEY: &str = "split.count";
pub(crate) const TENSORS_KEY: &str = "split.tensors.count";

/// A part's position as its file name tells it; `number` counts from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartName {
    directory: PathBuf,
    stem: String,
    pub(crate) number: usize,
    pub(crate) count: usize,
}

impl PartName {
    /// Reads a path that ends in `-NNNNN-of-NNNNN.gguf` with `1 ≤ number ≤ count`.
    pub(crate) fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| {
            let decimal = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
            decimal.then(|| text.parse::<usize>().ok()).flatten()
        };
        let (number, count) = (digits(number)?, digits(count)?);
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        (1..=count).contains(&number).then(|| Self { directory, stem: stem.to_owned(), number, count })
    }

    /// The path of another part, counted from 1.
    pub(crate) fn part(&self, number: usize) -> PathBuf {
        self.directory.join(format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count))
    }
}

/// What the keys say of a file: its number, counted from 0, and how many parts there are; `None` without those keys.
pub(crate) fn count(path: &Path, pairs: &IndexMap<String, Value>) -> Result<Option<(u64, u64)>, Error> {
    let Some(count) = integer(path, pairs, COUNT_KEY)? else { return Ok(None) };
    let number = integer(path, pairs, NUMBER_KEY)?.unwrap_or(0);
    Ok(Some((number, count)))
}

/// Checks the keys of the file that is part `number` (from 1) of `count` by name.
pub(crate) fn check_part(
    path: &Path,
    pairs: &IndexMap<String, Value>,
    number: usize,
    count: usize,
) -> Result<(), Error> {
    expect(path, pairs, COUNT_KEY, count)?;
    expect(path, pairs, NUMBER_KEY, number - 1)
}

/// Checks the first part's count of all tensors.
pub(crate) fn check_tensors(path: &Path, pairs: &IndexMap<String, Value>, found: usize) -> Result<(), Error> {
    expect(path, pairs, TENSORS_KEY, found)
}

fn expect(
    path: &Path,
    pairs: &IndexMap<String, Value>,
    key: &'static str,
    expected: usize,
) -> Result<(), Error> {
    let found = integer(path, pairs, key)?;
    if found == Some(expected as u64) {
        return Ok(());
    }
    let found = found.map_or_else(|| "missing".to_owned(), |n| n.to_string());
    Err(Error::SplitMismatch { file: path.to_owned(), key, found, expected: expected.to_string() })
}

/// A `split.*` key; writers disagree on the integer type.
fn integer(path: &Path, pairs: &IndexMap<String, Value>, key: &str) -> Result<Option<u64>, Error> {
    let Some(value) = pairs.get(key) else { return Ok(None) };
    Metadata::new(path, IndexMap::from([(key.to_owned(), value.clone())])).u64(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_part_names() {
        let part = PartName::parse(Path::new("/m/big-q4-00002-of-00003.gguf")).unwrap();
        assert_eq!((part.number, part.count), (2, 3));
        assert_eq!(part.part(3), Path::new("/m/big-q4-00003-of-00003.gguf"));
        for name in [
            "big.gguf",
            "big-00000-of-00003.gguf",
            "big-00004-of-00003.gguf",
            "big-0001-of-0003.gguf",
            "big-00001-of-00003.bin",
            "big-+0001-of-00003.gguf",
            "00001-of-00003.gguf",
        ] {
            assert_eq!(PartName::parse(Path::new(name)), None, "{name}");
        }
    }
}
