//! Numbers for people: medians, spreads, aligned columns.

/// The middle of `samples`; the mean of the two middle ones of an even number. Not a number when there is none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// Half the distance between the lowest and the highest sample, in percent of the median.
fn spread(samples: &[f64]) -> f64 {
    let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let high = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (high - low) / 2.0 / median(samples) * 100.0
}

/// The median with `decimals` digits, and the spread: `12.3 ± 4.5 %`.
pub(crate) fn with_spread(samples: &[f64], decimals: usize) -> String {
    format!("{:.decimals$} ± {:.1} %", median(samples), spread(samples))
}

/// Prints a title, the heads and the rows, with aligned columns.
pub(crate) fn print<const N: usize>(title: &str, heads: [&str; N], rows: &[[String; N]]) {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    });
    let line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("| {} |", padded.join(" | "));
    };
    println!("\n{title}\n");
    line(heads);
    println!("|{}|", widths.map(|width| "-".repeat(width + 2)).join("|"));
    for row in rows {
        line(row.each_ref().map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(with_spread(&[90.0, 100.0, 110.0], 0), "100 ± 10.0 %");
    }
}
