//! The parts of a date: adding them, counting them, cutting to them.

use super::calendar::{DateTime, Fields, TICKS_PER_DAY, TICKS_PER_MILLISECOND, TICKS_PER_SECOND, days_in_month};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

const NAMES: [(Part, &[&str]); 9] = [
    (Part::Year, &["year", "yyyy", "yy"]),
    (Part::Month, &["month", "mm", "m"]),
    (Part::Day, &["day", "dd", "d"]),
    (Part::Hour, &["hour", "hh"]),
    (Part::Minute, &["minute", "mi", "n"]),
    (Part::Second, &["second", "ss", "s"]),
    (Part::Millisecond, &["millisecond", "ms"]),
    (Part::Microsecond, &["microsecond", "mcs"]),
    (Part::Nanosecond, &["nanosecond", "ns"]),
];

impl Part {
    pub fn parse(name: &str) -> Option<Part> {
        let found = NAMES
            .iter()
            .find(|(_, names)| names.iter().any(|known| name.eq_ignore_ascii_case(known)));
        found.map(|(part, _)| *part)
    }

    /// Ticks of one unit, for the parts that always have the same length and at least a tick.
    fn ticks(self) -> Option<i64> {
        Some(match self {
            Part::Year | Part::Month | Part::Nanosecond => return None,
            Part::Day => TICKS_PER_DAY,
            Part::Hour => 3600 * TICKS_PER_SECOND,
            Part::Minute => 60 * TICKS_PER_SECOND,
            Part::Second => TICKS_PER_SECOND,
            Part::Millisecond => TICKS_PER_MILLISECOND,
            Part::Microsecond => 10,
        })
    }

    /// The moment `n` units later. Months end where they end: 31 January and a month is the last of February.
    pub fn add(self, moment: DateTime, n: i64) -> Option<DateTime> {
        let ticks = match self {
            Part::Year => return add_months(moment, n.checked_mul(12)?),
            Part::Month => return add_months(moment, n),
            Part::Nanosecond => n / 100,
            _ => n.checked_mul(self.ticks()?)?,
        };
        DateTime::from_ticks(moment.ticks().checked_add(ticks)?)
    }

    /// How many boundaries of this part lie between two moments.
    pub fn boundaries(self, start: DateTime, end: DateTime) -> Option<i64> {
        let (from, to) = (start.fields(), end.fields());
        match self {
            Part::Year => Some(to.year - from.year),
            Part::Month => Some((to.year - from.year) * 12 + to.month - from.month),
            Part::Nanosecond => (end.ticks() - start.ticks()).checked_mul(100),
            _ => {
                let unit = self.ticks()?;
                Some(end.ticks().div_euclid(unit) - start.ticks().div_euclid(unit))
            }
        }
    }

    /// The number in this part; below the second, the fraction in that unit.
    pub fn of(self, moment: DateTime) -> i64 {
        let fields = moment.fields();
        match self {
            Part::Year => fields.year,
            Part::Month => fields.month,
            Part::Day => fields.day,
            Part::Hour => fields.hour,
            Part::Minute => fields.minute,
            Part::Second => fields.second,
            Part::Millisecond => fields.fraction / TICKS_PER_MILLISECOND,
            Part::Microsecond => fields.fraction / 10,
            Part::Nanosecond => fields.fraction * 100,
        }
    }

    /// The latest moment at or before this one that lies a multiple of `size` units from `origin`.
    pub fn bin(self, moment: DateTime, size: i64, origin: DateTime) -> Option<DateTime> {
        match self {
            Part::Year => bin_months(moment, size.checked_mul(12)?, origin),
            Part::Month => bin_months(moment, size, origin),
            Part::Nanosecond => bin_ticks(moment, (size / 100).max(1), origin),
            _ => bin_ticks(moment, size.checked_mul(self.ticks()?)?, origin),
        }
    }
}

fn bin_ticks(moment: DateTime, width: i64, origin: DateTime) -> Option<DateTime> {
    let offset = moment.ticks() - origin.ticks();
    DateTime::from_ticks(
        origin
            .ticks()
            .checked_add(offset.div_euclid(width).checked_mul(width)?)?,
    )
}

fn bin_months(moment: DateTime, width: i64, origin: DateTime) -> Option<DateTime> {
    let (at, from) = (moment.fields(), origin.fields());
    let months = (at.year - from.year) * 12 + at.month - from.month;
    let bins = months.div_euclid(width);
    let candidate = add_months(origin, bins.checked_mul(width)?)?;
    // Within the first month the origin's day may not have come yet.
    if candidate <= moment {
        Some(candidate)
    } else {
        add_months(origin, (bins - 1).checked_mul(width)?)
    }
}

fn add_months(moment: DateTime, n: i64) -> Option<DateTime> {
    let fields = moment.fields();
    let months = (fields.year * 12 + fields.month - 1).checked_add(n)?;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    let day = fields.day.min(days_in_month(year, month));
    DateTime::from_fields(Fields {
        year,
        month,
        day,
        ..fields
    })
}
