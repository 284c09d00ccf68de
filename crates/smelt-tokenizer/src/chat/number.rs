//! Python's arithmetic, with integers of 128 bits.

use super::ast::Math;
use super::error::{Fault, Res};
use super::value::Value;

pub(super) fn math(op: Math, left: &Value, right: &Value) -> Res<Value> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return integer(op, a, b);
    }
    let (Some(a), Some(b)) = (left.as_float(), right.as_float()) else {
        return Err(Fault::new(format!(
            "unsupported operand types for {}: '{}' and '{}'",
            symbol(op),
            left.type_name(),
            right.type_name()
        )));
    };
    if b == 0.0 && matches!(op, Math::Div | Math::FloorDiv | Math::Rem) {
        return Err(Fault::new("division by zero"));
    }
    Ok(Value::Float(match op {
        Math::Add => a + b,
        Math::Sub => a - b,
        Math::Mul => a * b,
        Math::Div => a / b,
        Math::FloorDiv => (a / b).floor(),
        Math::Rem => match a % b {
            r if r != 0.0 && (r < 0.0) != (b < 0.0) => r + b,
            r => r,
        },
        Math::Pow => a.powf(b),
    }))
}

fn integer(op: Math, a: i128, b: i128) -> Res<Value> {
    if b == 0 && matches!(op, Math::Div | Math::FloorDiv | Math::Rem) {
        return Err(Fault::new("division by zero"));
    }
    let value = match op {
        Math::Add => a.checked_add(b),
        Math::Sub => a.checked_sub(b),
        Math::Mul => a.checked_mul(b),
        Math::Div => return Ok(Value::Float(a as f64 / b as f64)),
        Math::FloorDiv => a.checked_div(b).map(|q| if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }),
        Math::Rem => a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
        Math::Pow if b < 0 => return Ok(Value::Float((a as f64).powf(b as f64))),
        Math::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    value.map(Value::Int).ok_or_else(|| Fault::new("an integer grows past 128 bits"))
}

fn symbol(op: Math) -> &'static str {
    match op {
        Math::Add => "+",
        Math::Sub => "-",
        Math::Mul => "*",
        Math::Div => "/",
        Math::FloorDiv => "//",
        Math::Rem => "%",
        Math::Pow => "**",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_down_as_in_python() {
        let cases = [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, 3, 2, 0)];
        for (a, b, q, r) in cases {
            let run = |op| integer(op, a, b).unwrap().as_int();
            assert_eq!((run(Math::FloorDiv), run(Math::Rem)), (Some(q), Some(r)), "{a} {b}");
        }
    }
}
