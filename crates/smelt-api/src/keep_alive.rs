//! How long a model is kept that nobody uses: Ollama's `keep_alive`.

use std::time::Duration;

use serde_json::Value;

use crate::error::ApiError;

/// How long a model is kept that nobody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAlive {
    /// So long; zero unloads it behind the answer.
    For(Duration),
    /// For ever.
    Always,
}

/// Units of Go's durations, in seconds.
const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

impl KeepAlive {
    /// Seconds as a number, or a duration as Go writes it: `5m`, `1h30m`, `-1s`. Negative ones are for ever.
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn read(value: &Value) -> Result<Self, ApiError> {
        let seconds = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => seconds(text.trim()),
            _ => None,
        };
        let seconds = seconds.ok_or_else(|| {
            ApiError::value("keep_alive", "is neither a number of seconds nor a duration such as \"5m\"")
        })?;
        if seconds < 0.0 {
            return Ok(Self::Always);
        }
        // What is longer than time itself is for ever.
        Ok(Duration::try_from_secs_f64(seconds).map_or(Self::Always, Self::For))
    }
}

fn seconds(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        // The longest unit that fits: `ms` is not minutes.
        let fits = UNITS.iter().filter(|(unit, _)| rest.starts_with(unit));
        let (unit, seconds) = fits.max_by_key(|(unit, _)| unit.len())?;
        sum += number * seconds;
        rest = &rest[unit.len()..];
    }
    (!text.is_empty()).then_some(sign * sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_read_as_ollama_does() {
        let lasts = |seconds: f64| KeepAlive::For(Duration::from_secs_f64(seconds));
        for (value, keep) in [
            (json!(0), lasts(0.0)),
            (json!(300), lasts(300.0)),
            (json!(0.5), lasts(0.5)),
            (json!("0"), lasts(0.0)),
            (json!("5m"), lasts(300.0)),
            (json!("1h30m"), lasts(5400.0)),
            (json!("1.5s"), lasts(1.5)),
            (json!("250ms"), lasts(0.25)),
            (json!(-1), KeepAlive::Always),
            (json!("-1m"), KeepAlive::Always),
            (json!("-1"), KeepAlive::Always),
            (json!(1e300), KeepAlive::Always),
        ] {
            assert_eq!(KeepAlive::read(&value), Ok(keep), "{value}");
        }
        for value in [json!(""), json!("soon"), json!("5"), json!("5 m"), json!("m"), json!("5x"), json!([])]
        {
            let is_bare = value == json!("5");
            assert_eq!(KeepAlive::read(&value).is_ok(), is_bare, "{value}");
        }
    }
}
