//! Reading, checking and editing `config.toml`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use toml_edit::{Document, DocumentMut, Item, Table, TableLike, Value};

use super::{Entry, Place, Section, Setting, find};
use crate::nearest::nearest;

/// Bytes that a file of settings may have.
const MAX_BYTES: u64 = 1 << 20;

/// A table's name, and the place of a section in it.
type Group = (&'static str, fn(String) -> Place);

/// Tables of the file that hold a section per name.
const GROUPS: [Group; 2] = [("models", Place::Model), ("profiles", Place::Profile)];

/// The file's text; none if there is no file.
///
/// # Errors
/// If it can't be read, or is too large.
pub(super) fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    match read {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        Ok(_) if text.len() as u64 > MAX_BYTES => {
            Err(anyhow!("{} has more than {MAX_BYTES} bytes; is it the right file?", path.display()))
        }
        other => other.map(|_| text).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The values of the file.
///
/// # Errors
/// The first one that makes no sense, with its line.
pub(super) fn sections(path: &Path, text: &str) -> Result<Vec<Section>> {
    let reader = Reader { path, text };
    let document = reader.parse()?;
    let mut sections = vec![reader.section(document.as_table(), Place::Top)?];
    for (group, place) in GROUPS {
        let Some(item) = document.get(group) else { continue };
        for (name, item) in reader.table(item, group)?.iter() {
            let section = reader.table(item, &format!("{group}.{name}"))?;
            sections.push(reader.section(section, place(name.to_owned()))?);
        }
    }
    Ok(sections)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn parse(&self) -> Result<Document<&str>> {
        Document::parse(self.text).map_err(|e| {
            let what = e.message().trim().replace('\n', ", ");
            self.wrong(e.span(), &format!("this is no TOML: {what}; mend the line, or delete it"))
        })
    }

    /// What is wrong, behind the file and the line.
    fn wrong(&self, span: Option<Range<usize>>, what: &str) -> anyhow::Error {
        anyhow!("{}:{}: {what}", self.path.display(), self.line(span))
    }

    fn line(&self, span: Option<Range<usize>>) -> usize {
        let before = self.text.bytes().take(span.map_or(0, |span| span.start));
        before.filter(|byte| *byte == b'\n').count() + 1
    }

    fn table<'i>(&self, item: &'i Item, name: &str) -> Result<&'i dyn TableLike> {
        item.as_table_like().ok_or_else(|| {
            self.wrong(item.span(), &format!("{name} is no setting but a section; write [{name}]"))
        })
    }

    fn section(&self, table: &dyn TableLike, place: Place) -> Result<Section> {
        let mut entries = Vec::new();
        for (key, item) in table.iter() {
            if place == Place::Top && GROUPS.iter().any(|(group, _)| *group == key) {
                continue;
            }
            let span = table.key(key).and_then(|key| key.span()).or_else(|| item.span());
            let entry = entry(&place, key, item).map_err(|what| self.wrong(span.clone(), &what))?;
            entries.push(Entry { line: self.line(span), ..entry });
        }
        Ok(Section { place, entries })
    }
}

fn entry(place: &Place, key: &str, item: &Item) -> Result<Entry, String> {
    let setting = match nearest(key, GROUPS.iter().map(|(group, _)| *group)) {
        Some(group) if item.is_table() && find(key).is_err() => {
            return Err(format!("there is no section {key:?}; do you mean {group}?"));
        }
        _ => find(key)?,
    };
    may_stand(setting, place)?;
    let value =
        item.as_value().ok_or_else(|| format!("{key} is a setting and takes a value; write {key} = …"))?;
    Ok(Entry { setting, value: setting.text(value)?, line: 0 })
}

fn may_stand(setting: &Setting, place: &Place) -> Result<(), String> {
    match place {
        Place::Model(_) if !setting.per_model => {
            let key = setting.key;
            Err(format!("{key} is of the whole server, not of a model; move it to the top of the file"))
        }
        _ => Ok(()),
    }
}

/// The names of a place's table.
fn tables(place: &Place) -> Vec<&str> {
    match place {
        Place::Model(name) => vec!["models", name],
        Place::Profile(name) => vec!["profiles", name],
        Place::Environment | Place::Top => Vec::new(),
    }
}

/// Writes a value into the file; comments and order stay.
///
/// # Errors
/// If the file is none that [`sections`] reads, before and after, or can't be written.
pub(crate) fn set(path: &Path, place: &Place, setting: &Setting, mut value: Value) -> Result<()> {
    may_stand(setting, place).map_err(anyhow::Error::msg)?;
    let text = read(path)?;
    // Before anything moves, so that what is wrong is told with the line that a person sees.
    sections(path, &text)?;
    let mut document = parse(path, &text)?;
    let names = tables(place);
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, name) in names.iter().enumerate() {
        let mut new = Table::new();
        // [models] itself has nothing to say.
        new.set_implicit(depth + 1 < names.len());
        let item = table.entry(name).or_insert(Item::Table(new));
        table = item
            .as_table_like_mut()
            .with_context(|| format!("{}: {name} is no section; delete it", path.display()))?;
    }
    match table.get_mut(setting.key).and_then(Item::as_value_mut) {
        Some(old) => {
            // The comment behind a value belongs to it.
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(setting.key, Item::Value(value));
        }
    }
    let text = document.to_string();
    sections(path, &text)?;
    write(path, &text)
}

/// Takes a value out of the file; comments on lines of their own stay. Tells whether there was one.
///
/// # Errors
/// If the file is no TOML, or can't be written.
pub(crate) fn reset(path: &Path, place: &Place, key: &str) -> Result<bool> {
    let text = read(path)?;
    let reader = Reader { path, text: &text };
    let document = reader.parse()?;
    let mut table: &dyn TableLike = document.as_table();
    for name in tables(place) {
        match table.get(name).and_then(Item::as_table_like) {
            Some(inner) => table = inner,
            None => return Ok(false),
        }
    }
    let Some(item) = table.get(key) else { return Ok(false) };
    let spans = table.key(key).and_then(|key| key.span()).zip(item.span());
    let without = spans.and_then(|(key, value)| without_lines(&text, key.start, value.end));
    let without = match without {
        Some(text) => text,
        None => {
            let mut document = parse(path, &text)?;
            let mut table: &mut dyn TableLike = document.as_table_mut();
            for name in tables(place) {
                match table.get_mut(name).and_then(Item::as_table_like_mut) {
                    Some(inner) => table = inner,
                    None => return Ok(false),
                }
            }
            table.remove(key);
            document.to_string()
        }
    };
    write(path, &without)?;
    Ok(true)
}

/// The text without the lines of an entry; `None` if something else stands on them.
fn without_lines(text: &str, start: usize, end: usize) -> Option<String> {
    let (before, after) = (text.get(..start)?, text.get(end..)?);
    let first = before.rfind('\n').map_or(0, |at| at + 1);
    let rest = after.find('\n').map_or(after.len(), |at| at + 1);
    let behind = after[..rest].trim();
    let alone = before[first..].trim().is_empty() && (behind.is_empty() || behind.starts_with('#'));
    alone.then(|| format!("{}{}", &before[..first], &after[rest..]))
}

/// A text that was read without an error already, to be changed.
fn parse(path: &Path, text: &str) -> Result<DocumentMut> {
    text.parse().with_context(|| format!("cannot read {}", path.display()))
}

/// Replaces the file at once, so that a crash leaves the old one or the new one. A link stays a link.
fn write(path: &Path, text: &str) -> Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.into());
    let replace = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        if let Ok(old) = fs::metadata(&path) {
            file.as_file().set_permissions(old.permissions())?;
        }
        file.as_file().sync_all()?;
        file.persist(&path).map(|_| ()).map_err(|e| e.error)
    };
    replace().with_context(|| format!("cannot write {}", path.display()))
}
