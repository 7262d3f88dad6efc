//! Header values of one answer, written one after the other into one piece of memory that they share.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use http::HeaderValue;
use orrery_model::{Charge, Timestamp};

/// Room for the values of most answers.
const BYTES_USUAL: usize = 224;

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
        const DIGITS: &str = "0123456789";
        match usize::try_from(number) {
            Ok(digit @ 0..10) => HeaderValue::from_static(&DIGITS[digit..=digit]),
            _ => self.text(|out| put_number(out, number)),
        }
    }

    /// As [`Charge`] displays.
    pub fn charge(&mut self, charge: Charge) -> HeaderValue {
        let (whole, rest) = (charge.as_hundredths() / 100, charge.as_hundredths() % 100);
        if rest == 0 {
            return self.number(whole);
        }
        let digit = |value: u64| b'0' + value as u8;
        self.text(|out| {
            put_number(out, whole);
            match (rest / 10, rest % 10) {
                (tenths, 0) => out.put_slice(&[b'.', digit(tenths)]),
                (tenths, hundredths) => out.put_slice(&[b'.', digit(tenths), digit(hundredths)]),
            }
        })
    }
}

/// Milliseconds to the microsecond, as of `12.345`.
pub(super) fn milliseconds(time: Duration) -> HeaderValue {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let digit = |unit: u64| b'0' + (micros / unit % 10) as u8;
    // One piece of memory, as small as it may be: this value comes when all others have been written.
    Values(BytesMut::with_capacity(8)).text(|out| {
        put_number(out, micros / 1000);
        out.put_slice(&[b'.', digit(100), digit(10), digit(1)]);
    })
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

/// A time as headers show it, to the millisecond: `Thu, 27 Apr 2017 00:51:12.345 GMT`.
pub(super) fn put_time(out: &mut BytesMut, at: Timestamp) {
    const DAYS: [&[u8]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
    ];
    let (days, of_day) = (at.seconds() / 86_400, at.seconds() % 86_400);
    let (year, month, day) = date(days);
    out.put_slice(DAYS[(days % 7) as usize]);
    out.put_slice(b", ");
    put_padded(out, day, 2);
    out.put_slice(b" ");
    out.put_slice(MONTHS[month]);
    out.put_slice(b" ");
    put_padded(out, year, 4);
    for (separator, number) in [(b' ', of_day / 3600), (b':', of_day / 60 % 60), (b':', of_day % 60)] {
        out.put_u8(separator);
        put_padded(out, number, 2);
    }
    out.put_slice(b".");
    put_padded(out, at.0 % 1000, 3);
    out.put_slice(b" GMT");
}

/// Year, month from 0 and day from 1 of a day since 1970. Years are counted from March on, so that the leap day is their last.
fn date(days: u64) -> (u64, usize, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    (era * 400 + year_of_era + u64::from(month < 2), month as usize, day)
}

fn put_padded(out: &mut BytesMut, number: u64, n_digits: u32) {
    let mut least = 10u64.pow(n_digits - 1);
    while least > 1 && number < least {
        out.put_u8(b'0');
        least /= 10;
    }
    put_number(out, number);
}

/// Copies text, with escapes for what a header cannot hold, and for what clients would take for an escape: they decode it.
pub(super) fn put_visible(out: &mut BytesMut, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'%';
    if text.bytes().all(is_plain) {
        return out.put_slice(text.as_bytes());
    }
    for byte in text.bytes() {
        match byte {
            _ if is_plain(byte) => out.put_u8(byte),
            _ => out.put_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_headers_show_them() {
        for (ms, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00.000 GMT"),
            (951_782_400_007, "Tue, 29 Feb 2000 00:00:00.007 GMT"),
            (951_868_799_999, "Tue, 29 Feb 2000 23:59:59.999 GMT"),
            (951_868_800_000, "Wed, 01 Mar 2000 00:00:00.000 GMT"),
            (1_709_251_199_000, "Thu, 29 Feb 2024 23:59:59.000 GMT"),
            (1_735_689_599_100, "Tue, 31 Dec 2024 23:59:59.100 GMT"),
            (4_107_542_400_000, "Mon, 01 Mar 2100 00:00:00.000 GMT"),
        ] {
            let shown = Values::new().text(|out| put_time(out, Timestamp(ms)));
            assert_eq!(shown.to_str().unwrap(), text);
        }
    }

    #[test]
    fn values_share_their_memory_and_keep_their_bounds() {
        let mut values = Values::new();
        let all = [
            (values.number(0), "0"),
            (values.number(u64::MAX), "18446744073709551615"),
            (milliseconds(Duration::from_micros(12_345)), "12.345"),
            (milliseconds(Duration::from_nanos(70_999)), "0.070"),
            (values.charge(Charge::hundredths(700)), "7"),
            (values.charge(Charge::hundredths(571)), "5.71"),
            (values.charge(Charge::hundredths(550)), "5.5"),
            (values.charge(Charge::hundredths(1_005)), "10.05"),
            (values.text(|out| put_visible(out, "a é")), "a %C3%A9"),
            (values.text(|out| put_visible(out, "100% é%41")), "100%25 %C3%A9%2541"),
            (values.text(|out| put_visible(out, "100%")), "100%25"),
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
