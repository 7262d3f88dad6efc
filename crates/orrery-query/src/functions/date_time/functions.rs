//! The date and time functions.

use orrery_model::Value;

use super::calendar::{DateTime, Fields, TICKS_PER_MILLISECOND};
use super::format::format;
use super::part::Part;
use crate::functions::arguments::{Arguments, integer, string};
use crate::functions::registry::{Table, between, exactly};

pub(in crate::functions) fn register(table: &mut Table) {
    register_current(table);
    register_parts(table);
    register_conversions(table);
}

/// A run has one notion of now, so the static forms are the same functions.
fn register_current(table: &mut Table) {
    table.scalar("GETCURRENTDATETIME", exactly(0), |arguments| print(now(arguments)));
    table.alias("GETCURRENTDATETIMESTATIC", "GETCURRENTDATETIME");
    table.scalar("GETCURRENTTICKS", exactly(0), |arguments| {
        integer(arguments.environment.now_ticks)
    });
    table.alias("GETCURRENTTICKSSTATIC", "GETCURRENTTICKS");
    table.scalar("GETCURRENTTIMESTAMP", exactly(0), |arguments| {
        integer(arguments.environment.now_ticks.div_euclid(TICKS_PER_MILLISECOND))
    });
    table.alias("GETCURRENTTIMESTAMPSTATIC", "GETCURRENTTIMESTAMP");
    table.all_or_none("NOW", 2, |arguments| match arguments.len() {
        0 => print(now(arguments)),
        _ => print(part(arguments, 0)?.add(now(arguments)?, arguments.integer(1)?)),
    });
    table.scalar("AGO", exactly(2), |arguments| {
        print(part(arguments, 0)?.add(now(arguments)?, arguments.integer(1)?.checked_neg()?))
    });
}

fn register_parts(table: &mut Table) {
    table.scalar("DATETIMEADD", exactly(3), |arguments| {
        print(part(arguments, 0)?.add(moment(arguments, 2)?, arguments.integer(1)?))
    });
    table.scalar("DATETIMEDIFF", exactly(3), |arguments| {
        integer(part(arguments, 0)?.boundaries(moment(arguments, 1)?, moment(arguments, 2)?)?)
    });
    table.scalar("DATETIMEPART", exactly(2), |arguments| {
        integer(part(arguments, 0)?.of(moment(arguments, 1)?))
    });
    table.scalar("DAY", exactly(1), |arguments| {
        integer(Part::Day.of(moment(arguments, 0)?))
    });
    table.scalar("MONTH", exactly(1), |arguments| {
        integer(Part::Month.of(moment(arguments, 0)?))
    });
    table.scalar("YEAR", exactly(1), |arguments| {
        integer(Part::Year.of(moment(arguments, 0)?))
    });
    table.scalar("DATETIMEBIN", between(2, 4), bin);
    table.scalar("DATETIMEFROMPARTS", between(3, 7), from_parts);
    table.scalar("DATETIMEFORMAT", exactly(2), |arguments| {
        string(format(moment(arguments, 0)?, arguments.string(1)?)?)
    });
}

fn register_conversions(table: &mut Table) {
    table.scalar("DATETIMETOTICKS", exactly(1), |arguments| {
        integer(moment(arguments, 0)?.ticks())
    });
    table.scalar("DATETIMETOTIMESTAMP", exactly(1), |arguments| {
        integer(moment(arguments, 0)?.ticks().div_euclid(TICKS_PER_MILLISECOND))
    });
    table.scalar("TICKSTODATETIME", exactly(1), |arguments| {
        print(DateTime::from_ticks(arguments.integer(0)?))
    });
    table.scalar("TIMESTAMPTODATETIME", exactly(1), |arguments| {
        print(DateTime::from_ticks(
            arguments.integer(0)?.checked_mul(TICKS_PER_MILLISECOND)?,
        ))
    });
}

fn print(moment: Option<DateTime>) -> Option<Value> {
    string(moment?.print())
}

fn now(arguments: &Arguments<'_>) -> Option<DateTime> {
    DateTime::from_ticks(arguments.environment.now_ticks)
}

fn moment(arguments: &Arguments<'_>, index: usize) -> Option<DateTime> {
    DateTime::parse(arguments.string(index)?)
}

fn part(arguments: &Arguments<'_>, index: usize) -> Option<Part> {
    Part::parse(arguments.string(index)?)
}

fn bin(arguments: &Arguments<'_>) -> Option<Value> {
    let (moment, part) = (moment(arguments, 0)?, part(arguments, 1)?);
    let size = if arguments.has(2) { arguments.integer(2)? } else { 1 };
    let origin = if arguments.has(3) {
        self::moment(arguments, 3)?
    } else {
        DateTime::from_ticks(0)?
    };
    // The earliest origin is that of the service's file times.
    const YEAR_MIN: i64 = 1601;
    if size <= 0 || origin.fields().year < YEAR_MIN {
        None
    } else {
        print(part.bin(moment, size, origin))
    }
}

fn from_parts(arguments: &Arguments<'_>) -> Option<Value> {
    let field = |index: usize| {
        if arguments.has(index) {
            arguments.integer(index)
        } else {
            Some(0)
        }
    };
    let fields = Fields {
        year: field(0)?,
        month: field(1)?,
        day: field(2)?,
        hour: field(3)?,
        minute: field(4)?,
        second: field(5)?,
        fraction: field(6)?,
    };
    print(DateTime::from_fields(fields))
}
