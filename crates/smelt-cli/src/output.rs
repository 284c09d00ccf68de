//! Text and JSON on standard output.

use std::borrow::Cow;
use std::io::{self, Write};

use anyhow::Result;
use indicatif::{DecimalBytes, HumanDuration};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prints one line of text. Errors are returned, so that a closed pipe ends the program quietly.
pub(crate) fn line(text: impl AsRef<str>) -> Result<()> {
    Ok(writeln!(io::stdout().lock(), "{}", text.as_ref())?)
}

/// Prints a value as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

/// Prints a value as one line of JSON, an event of a stream.
pub(crate) fn event(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value)?)
}

/// The text with what would steer a terminal written out, but for the characters of `kept`. Names in model files and
/// answers of servers may hold anything.
pub(crate) fn plain<'a>(text: &'a str, kept: &str) -> Cow<'a, str> {
    // Marks that change the direction of the text around them have no line of their own in `is_control`.
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let steers = |c: char| (c.is_control() || turns(c)) && !kept.contains(c);
    if !text.contains(steers) {
        return text.into();
    }
    text.chars()
        .fold(String::new(), |mut out, c| {
            match steers(c) {
                true => out.extend(c.escape_default()),
                false => out.push(c),
            }
            out
        })
        .into()
}

/// Prints rows in columns of equal width, two spaces apart; the last column is not padded.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> Result<()> {
    let rows: Vec<[Cow<'_, str>; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| plain(cell, ""))).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// A number of bytes for people, in powers of ten.
pub(crate) fn bytes(n: u64) -> String {
    DecimalBytes(n).to_string()
}

/// How long ago a moment (seconds since 1970) was.
pub(crate) fn ago(moment: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    format!("{} ago", HumanDuration(Duration::from_secs(now.saturating_sub(moment))))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(
            plain("Tiny\u{1b}[31m\u{9b}2J\r\n\u{202e}", "\n"),
            "Tiny\\u{1b}[31m\\u{9b}2J\\r\n\\u{202e}"
        );
        assert!(matches!(plain("Größe 日本", ""), std::borrow::Cow::Borrowed("Größe 日本")));
    }
}
