//! Header values of one answer, written one after the other into one piece of memory that they share.

use bytes::{BufMut, BytesMut};
use http::HeaderValue;
use orrery_model::Charge;

/// Room for the values of most answers.
const BYTES_USUAL: usize = 160;

#[derive(Debug)]
pub(super) struct Values(BytesMut);

impl Values {
    pub fn new() -> Values {
        Values(BytesMut::with_capacity(BYTES_USUAL))
    }

    /// What `write` writes, which must be visible ASCII.
    pub fn text(&mut self, write: impl FnOnce(&mut BytesMut)) -> HeaderValue {
        write(&mut self.0);
        let text = self.0.split().freeze();
        HeaderValue::from_maybe_shared(text).expect("only visible characters are written")
    }

    pub fn number(&mut self, number: u64) -> HeaderValue {
        self.text(|out| put_number(out, number))
    }

    /// As [`Charge`] displays.
    pub fn charge(&mut self, charge: Charge) -> HeaderValue {
        let (whole, rest) = (charge.as_hundredths() / 100, charge.as_hundredths() % 100);
        let digit = |value: u64| b'0' + value as u8;
        self.text(|out| {
            put_number(out, whole);
            match (rest / 10, rest % 10) {
                (0, 0) => {}
                (tenths, 0) => out.put_slice(&[b'.', digit(tenths)]),
                (tenths, hundredths) => out.put_slice(&[b'.', digit(tenths), digit(hundredths)]),
            }
        })
    }
}

/// Decimal digits, without the formatting machinery: every answer has half a dozen numbers.
pub(super) fn put_number(out: &mut BytesMut, mut number: u64) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&digits[start..]);
}

/// Copies text, with escapes for what a header cannot hold.
pub(super) fn put_visible(out: &mut BytesMut, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return out.put_slice(text.as_bytes());
    }
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' => out.put_u8(byte),
            _ => out.put_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_share_their_memory_and_keep_their_bounds() {
        let mut values = Values::new();
        let all = [
            (values.number(0), "0"),
            (values.number(u64::MAX), "18446744073709551615"),
            (values.charge(Charge::hundredths(700)), "7"),
            (values.charge(Charge::hundredths(571)), "5.71"),
            (values.charge(Charge::hundredths(550)), "5.5"),
            (values.charge(Charge::hundredths(1_005)), "10.05"),
            (values.text(|out| put_visible(out, "a é")), "a %C3%A9"),
            (
                values.text(|out| put_visible(out, &"x".repeat(1000))),
                &"x".repeat(1000),
            ),
        ];
        for (value, text) in all {
            assert_eq!(value.to_str().unwrap(), text);
        }
    }
}
