//! "Do you mean …?"

/// How alike (Jaro-Winkler, 0 to 1) a name must be to be offered instead.
const SIMILAR: f64 = 0.75;

/// The name that was likely meant by one that doesn't exist.
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rated = names.map(|name| (strsim::jaro_winkler(wrong, name), name));
    rated.filter(|(alike, _)| *alike >= SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}
