//! Numbers: 64-bit integers where the text was one, doubles otherwise.

use std::cmp::Ordering;

/// A JSON number. `UInt` holds only what does not fit `Int`, and a whole double within the range of `Int` is an `Int`,
/// so every numeric value has exactly one form.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Int(i64),
    UInt(u64),
    Double(f64),
}

impl Number {
    /// The number for a double. `-0.0` is zero.
    pub fn from_f64(double: f64) -> Number {
        const BOUND: f64 = 9_223_372_036_854_775_808.0;
        if double.trunc() == double && (-BOUND..BOUND).contains(&double) {
            Number::Int(double as i64)
        } else {
            Number::Double(double)
        }
    }

    /// Nearest double; integers beyond 2^53 lose digits.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::UInt(uint) => uint as f64,
            Number::Double(double) => double,
        }
    }

    pub fn as_i64(self) -> Option<i64> {
        match self {
            Number::Int(int) => Some(int),
            _ => None,
        }
    }

    /// Canonical text: integers in full, doubles with the fewest of 15 or 17 significant digits that read back equal.
    pub fn print(self, out: &mut Vec<u8>) {
        use std::io::Write;
        let written = match self {
            Number::Int(int) => write!(out, "{int}"),
            Number::UInt(uint) => write!(out, "{uint}"),
            Number::Double(double) => {
                print_double(double, out);
                Ok(())
            }
        };
        written.expect("writing to a vector cannot fail");
    }

    /// Total order by value. Integers and doubles compare exactly; not-a-number sorts before everything.
    pub fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(&b),
            (Number::UInt(a), Number::UInt(b)) => a.cmp(&b),
            (Number::Int(_), Number::UInt(_)) => Ordering::Less,
            (Number::UInt(_), Number::Int(_)) => Ordering::Greater,
            (Number::Double(a), Number::Double(b)) => compare_doubles(a, b),
            (Number::Double(a), b) => compare_with_integer(a, b),
            (a, Number::Double(b)) => compare_with_integer(b, a).reverse(),
        }
    }
}

fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// A `Double` against an integer. In canonical form a finite double is either fractional or beyond the integer range, so
/// comparing with the integer's nearest double, then against the exact integer, is exact.
fn compare_with_integer(double: f64, integer: Number) -> Ordering {
    if double.is_nan() {
        return Ordering::Less;
    }
    let exact: i128 = match integer {
        Number::Int(int) => i128::from(int),
        Number::UInt(uint) => i128::from(uint),
        Number::Double(_) => unreachable!("the caller matched an integer"),
    };
    if double >= 1.8e19 {
        return Ordering::Greater.min(if double >= 18_446_744_073_709_551_616.0 {
            Ordering::Greater
        } else {
            (double as i128).cmp(&exact)
        });
    }
    if double < -9.3e18 {
        return Ordering::Less;
    }
    let floor = double.floor();
    (floor as i128).cmp(&exact).then(if double > floor {
        Ordering::Greater
    } else {
        Ordering::Equal
    })
}

/// C's `%.15g`, or `%.17g` when 15 digits read back differently, with at least three exponent digits as the service
/// prints them.
fn print_double(double: f64, out: &mut Vec<u8>) {
    if !double.is_finite() {
        // Never stored or answered; kept printable for messages.
        out.extend_from_slice(if double.is_nan() {
            b"NaN"
        } else if double > 0.0 {
            b"Infinity"
        } else {
            b"-Infinity"
        });
        return;
    }
    let short = format!("{double:.14e}");
    let text = if short.parse() == Ok(double) {
        short
    } else {
        format!("{double:.16e}")
    };
    let (mantissa, exponent) = text.split_once('e').expect("exponent form always has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let precision = mantissa.len() as i32 - 1;
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    out.extend_from_slice(sign.as_bytes());
    if (-4..precision).contains(&exponent) {
        print_plain(digits, exponent, out);
    } else {
        print_exponent(digits, exponent, out);
    }
}

fn print_plain(digits: &str, exponent: i32, out: &mut Vec<u8>) {
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.extend_from_slice(digits.as_bytes());
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.extend_from_slice(digits.as_bytes());
        out.resize(out.len() + whole - digits.len(), b'0');
    } else {
        out.extend_from_slice(&digits.as_bytes()[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits.as_bytes()[whole..]);
    }
}

fn print_exponent(digits: &str, exponent: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&digits.as_bytes()[..1]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits.as_bytes()[1..]);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    out.extend_from_slice(format!("e{sign}{:03}", exponent.abs()).as_bytes());
}

impl From<i64> for Number {
    fn from(int: i64) -> Number {
        Number::Int(int)
    }
}

impl From<u64> for Number {
    fn from(uint: u64) -> Number {
        i64::try_from(uint).map_or(Number::UInt(uint), Number::Int)
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.compare(*other) == Ordering::Equal
    }
}
