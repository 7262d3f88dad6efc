//! Dates of signed requests: `Thu, 27 Apr 2017 00:51:12 GMT`, and how far they may be from now.

use orrery_model::{Error, Result, Status, Timestamp};

use super::unauthorized;

/// A token lives 15 minutes, and clocks may be 15 minutes apart.
const SECONDS_BEHIND_MAX: u64 = 30 * 60;
const SECONDS_AHEAD_MAX: u64 = 15 * 60;

const MONTHS: [&[u8; 3]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];

/// Refuses a missing or unreadable date with 401 and one outside the window with 403.
pub fn check_window(date: Option<&str>, now: Timestamp) -> Result<()> {
    let text = date.ok_or_else(|| unauthorized("Neither the header x-ms-date nor the header date is present."))?;
    let seconds = parse(text).ok_or_else(|| unauthorized("The date of the request is not a valid RFC 1123 date."))?;
    let now = now.seconds();
    if seconds + SECONDS_BEHIND_MAX < now || seconds > now + SECONDS_AHEAD_MAX {
        return Err(Error::new(
            Status::FORBIDDEN,
            format!(
                "The authorization token is not valid at the current time. Please create another token and retry \
                 (token start time: {text}, server time: {now} seconds since 1970)."
            ),
        ));
    }
    Ok(())
}

/// Seconds since 1970 of an RFC 1123 date in GMT. The weekday is not compared with the date.
pub fn parse(text: &str) -> Option<u64> {
    let bytes: &[u8; 29] = text.trim().as_bytes().try_into().ok()?;
    let separators = [
        (3, b','),
        (4, b' '),
        (7, b' '),
        (11, b' '),
        (16, b' '),
        (19, b':'),
        (22, b':'),
        (25, b' '),
    ];
    if separators.iter().any(|(index, separator)| bytes[*index] != *separator)
        || !bytes[26..].eq_ignore_ascii_case(b"GMT")
    {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        bytes[range].iter().try_fold(0u64, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))
        })
    };
    let (day, year) = (number(5..7)?, number(12..16)?);
    let month = MONTHS
        .iter()
        .position(|name| bytes[8..11].eq_ignore_ascii_case(*name))? as u64
        + 1;
    let (hour, minute, second) = (number(17..19)?, number(20..22)?, number(23..25)?);
    if !(1..=31).contains(&day) || year < 1970 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days of the Gregorian calendar, counting years from March so that the leap day comes last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_become_seconds_since_1970() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 27 Apr 2017 00:51:12 GMT", 1_493_254_272),
            ("thu, 27 apr 2017 00:51:12 gmt", 1_493_254_272),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
            ("Sun, 31 Dec 2000 12:00:00 GMT", 978_264_000),
        ] {
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn anything_else_is_not_a_date() {
        for text in [
            "",
            "now",
            "2017-04-27T00:51:12Z",
            "Thu, 27 Apr 2017 00:51:12 UTC",
            "Thu, 27 Foo 2017 00:51:12 GMT",
            "Thu, 27 Apr 2017 25:51:12 GMT",
            "Thu, 2x Apr 2017 00:51:12 GMT",
            "Thu, 00 Apr 2017 00:51:12 GMT",
            "Thu, 01 Jan 0000 00:51:12 GMT",
            "Thu, 27 Apr 2017 00:51:12 GMTé",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_date_may_be_half_an_hour_old_or_a_quarter_ahead() {
        let date = Some("Thu, 27 Apr 2017 00:51:12 GMT");
        let at = |offset: i64| check_window(date, Timestamp((1_493_254_272 + offset) as u64 * 1000));
        for offset in [-900, 0, 1_800] {
            assert!(at(offset).is_ok(), "{offset}");
        }
        for offset in [-901, 1_801] {
            assert_eq!(at(offset).expect_err("outside").status(), Status::FORBIDDEN, "{offset}");
        }
    }
}
