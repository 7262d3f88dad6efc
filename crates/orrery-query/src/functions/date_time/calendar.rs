//! The calendar: strings to ticks and back.

/// 100 ns units.
pub(crate) const TICKS_PER_SECOND: i64 = 10_000_000;
pub(crate) const TICKS_PER_MILLISECOND: i64 = 10_000;
pub(crate) const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;

/// A moment between the years 1 and 9999, in ticks since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DateTime {
    ticks: i64,
}

/// A moment's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    /// In ticks.
    pub fraction: i64,
}

impl DateTime {
    /// `None` outside the years 1 to 9999.
    pub fn from_ticks(ticks: i64) -> Option<DateTime> {
        let first = days_from_civil(1, 1, 1) * TICKS_PER_DAY;
        let end = days_from_civil(10_000, 1, 1) * TICKS_PER_DAY;
        (first..end).contains(&ticks).then_some(DateTime { ticks })
    }

    pub fn ticks(self) -> i64 {
        self.ticks
    }

    /// `None` when a field is out of its range.
    pub fn from_fields(fields: Fields) -> Option<DateTime> {
        let Fields {
            year,
            month,
            day,
            hour,
            minute,
            second,
            fraction,
        } = fields;
        let valid = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..TICKS_PER_SECOND).contains(&fraction);
        if !valid {
            return None;
        }
        let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        Some(DateTime {
            ticks: seconds * TICKS_PER_SECOND + fraction,
        })
    }

    pub fn fields(self) -> Fields {
        let (year, month, day) = civil_from_days(self.ticks.div_euclid(TICKS_PER_DAY));
        let in_day = self.ticks.rem_euclid(TICKS_PER_DAY);
        let seconds = in_day / TICKS_PER_SECOND;
        Fields {
            year,
            month,
            day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            fraction: in_day % TICKS_PER_SECOND,
        }
    }

    /// Reads `YYYY-MM-DD`, optionally followed by a time, a fraction of 1 to 7 digits, and `Z`.
    pub fn parse(text: &str) -> Option<DateTime> {
        let mut reader = Reader { rest: text };
        let year = reader.digits(4)?;
        let month = reader.after('-')?.digits(2)?;
        let day = reader.after('-')?.digits(2)?;
        let mut fields = Fields {
            year,
            month,
            day,
            hour: 0,
            minute: 0,
            second: 0,
            fraction: 0,
        };
        if let Some(rest) = reader.rest.strip_prefix(['T', ' ']) {
            reader.rest = rest;
            fields.hour = reader.digits(2)?;
            fields.minute = reader.after(':')?.digits(2)?;
            fields.second = reader.after(':')?.digits(2)?;
            fields.fraction = reader.fraction()?;
        }
        let rest = reader.rest.strip_suffix('Z').unwrap_or(reader.rest);
        if rest.is_empty() {
            DateTime::from_fields(fields)
        } else {
            None
        }
    }

    /// The form all functions answer with.
    pub fn print(self) -> String {
        let Fields {
            year,
            month,
            day,
            hour,
            minute,
            second,
            fraction,
        } = self.fields();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn digits(&mut self, n: usize) -> Option<i64> {
        let digits = self.rest.get(..n)?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        self.rest = &self.rest[n..];
        digits.parse().ok()
    }

    fn after(&mut self, separator: char) -> Option<&mut Self> {
        self.rest = self.rest.strip_prefix(separator)?;
        Some(self)
    }

    /// Ticks of an optional fraction.
    fn fraction(&mut self) -> Option<i64> {
        let Some(rest) = self.rest.strip_prefix('.') else {
            return Some(0);
        };
        self.rest = rest;
        let n = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=7).contains(&n) {
            return None;
        }
        Some(self.digits(n)? * 10_i64.pow(7 - n as u32))
    }
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01, by counting years from March, when leap days come last.
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}
