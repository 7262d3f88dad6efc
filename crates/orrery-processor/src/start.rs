//! Where a lease that has no token yet begins.
//!
//! The choice is written into the lease when it is made, so that a host that comes later, with other settings or after a
//! crash, begins where the first one would have. Invariant: a lease is never without a position.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::token::FeedToken;

/// Where a unit starts when it has no leases yet. Without effect once it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartFrom {
    /// What changes after the first start.
    #[default]
    Now,
    /// Everything the feed has.
    Beginning,
    /// What changed after an instant; the service counts in whole seconds.
    Time(SystemTime),
}

impl StartFrom {
    /// As kept in a lease.
    pub fn to_text(self) -> String {
        match self {
            StartFrom::Now => "now".to_owned(),
            StartFrom::Beginning => "beginning".to_owned(),
            StartFrom::Time(time) => OffsetDateTime::from(time)
                .format(&Rfc3339)
                .unwrap_or_else(|_| "beginning".to_owned()),
        }
    }

    pub fn parse(text: &str) -> Option<StartFrom> {
        match text {
            "now" => Some(StartFrom::Now),
            "beginning" => Some(StartFrom::Beginning),
            time => OffsetDateTime::parse(time, &Rfc3339)
                .ok()
                .map(|time| StartFrom::Time(time.into())),
        }
    }
}

/// Where a read begins.
///
/// A reader that began at a time keeps it beside its tokens: where partitions were merged, changes from before that time may
/// lie behind newer ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    After(FeedToken),
    /// After a token, without what is not newer than a time.
    AfterSince(FeedToken, SystemTime),
    From(StartFrom),
}

impl Position {
    /// Behind a page that was read from here.
    #[must_use]
    pub fn moved_to(&self, token: FeedToken) -> Position {
        match self.time() {
            Some(time) => Position::AfterSince(token, time),
            None => Position::After(token),
        }
    }

    /// The token, once something was read.
    pub fn token(&self) -> Option<&FeedToken> {
        match self {
            Position::After(token) | Position::AfterSince(token, _) => Some(token),
            Position::From(_) => None,
        }
    }

    /// The time that everything read from here has to be newer than, if the reader was told one.
    pub fn time(&self) -> Option<SystemTime> {
        match self {
            Position::AfterSince(_, time) | Position::From(StartFrom::Time(time)) => Some(*time),
            Position::After(_) | Position::From(StartFrom::Now | StartFrom::Beginning) => None,
        }
    }

    /// The start that goes along with a position, as text: all of it, or the time that stays beside a token.
    pub(crate) fn start(&self) -> Option<StartFrom> {
        match self {
            Position::After(_) => None,
            Position::AfterSince(_, time) => Some(StartFrom::Time(*time)),
            Position::From(start) => Some(*start),
        }
    }

    /// The reverse of its token and its start.
    pub(crate) fn of(token: Option<FeedToken>, start: Option<StartFrom>) -> Option<Position> {
        match (token, start) {
            (Some(token), Some(StartFrom::Time(time))) => Some(Position::AfterSince(token, time)),
            (Some(token), _) => Some(Position::After(token)),
            (None, start) => start.map(Position::From),
        }
    }
}

/// The clock of a lease's `timestamp`: UTC, milliseconds, `Z`.
pub fn stamp(since_1970: Duration) -> String {
    let time = OffsetDateTime::UNIX_EPOCH + Duration::from_millis(since_1970.as_millis() as u64);
    let (date, clock) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second(),
        clock.millisecond(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_survives_in_a_lease() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_681_302);
        for start in [StartFrom::Now, StartFrom::Beginning, StartFrom::Time(time)] {
            assert_eq!(StartFrom::parse(&start.to_text()), Some(start));
        }
        assert_eq!(StartFrom::parse("tomorrow"), None);
    }

    #[test]
    fn the_time_a_reader_began_at_stays_with_it() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_681_302);
        let began = Position::From(StartFrom::Time(time));
        let reached = began.moved_to(FeedToken::at(5)).moved_to(FeedToken::at(7));
        assert_eq!(reached, Position::AfterSince(FeedToken::at(7), time));
        assert_eq!(Position::of(reached.token().cloned(), reached.start()), Some(reached));
        for start in [StartFrom::Now, StartFrom::Beginning] {
            let reached = Position::From(start).moved_to(FeedToken::at(7));
            assert_eq!(reached, Position::After(FeedToken::at(7)), "nobody asked for a time");
        }
    }

    #[test]
    fn a_stamp_is_read_by_every_processor() {
        assert_eq!(
            stamp(Duration::from_millis(1_755_681_302_123)),
            "2025-08-20T09:15:02.123Z"
        );
    }
}
