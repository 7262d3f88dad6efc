//! Header names, and what request headers mean. The one place that spells them.
//!
//! Reading is typed: a header that is absent or empty is `None`, one that cannot be what it should be is a 400 that names
//! it, and one we have no use for is never looked at. Booleans come in any case.

use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue};
use orrery_model::etag::Precondition;
use orrery_model::offer::{Migration, Throughput};
use orrery_model::{Epk, Error, IndexingDirective, PartitionId, PartitionKey, ResourceId, Result, SessionToken};
use orrery_node::api::{Consistency, FeedMode, FeedStart, FeedTarget, FromHistory, Options, Page};

use crate::activity::ActivityId;

pub mod names;

use names as name;

/// The longest EPK a client could name, in hex digits: generous for a hierarchical key of three levels and for version 1.
const EPK_DIGITS_MAX: usize = 1024;

/// Others are lists, or of no interest here.
fn has_one_value(name: &HeaderName) -> bool {
    const OTHERS: [HeaderName; 6] = [
        http::header::AUTHORIZATION,
        http::header::CONTENT_TYPE,
        http::header::DATE,
        http::header::HOST,
        http::header::IF_MATCH,
        http::header::IF_NONE_MATCH,
    ];
    name.as_str().starts_with("x-ms-") || OTHERS.contains(name)
}

/// The headers of a request. Most questions are about headers that are not there, and looking for one in the map means to
/// hash its whole name; so a mark is kept for every name that is there, and of a name without a mark no more is asked.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    map: &'a HeaderMap,
    marks: u128,
}

impl<'a> Headers<'a> {
    pub fn of(map: &'a HeaderMap) -> Headers<'a> {
        let marks = map.keys().fold(0, |marks, name| marks | mark(name));
        Headers { map, marks }
    }

    /// The value of a header, the first if there are several.
    pub fn get(&self, name: &HeaderName) -> Option<&'a HeaderValue> {
        match self.marks & mark(name) {
            0 => None,
            _ => self.map.get(name),
        }
    }

    /// Refuses a header that is there twice with different values: whoever passed the request on may have gone by the other one.
    pub fn check_agreement(&self) -> Result<()> {
        // Nearly always; and this is known without looking at any of them.
        if self.map.len() == self.map.keys_len() {
            return Ok(());
        }
        for name in self.map.keys().filter(|name| has_one_value(name)) {
            let mut values = self.map.get_all(name).iter();
            let first = values.next();
            if values.any(|value| Some(value) != first) {
                let message = format!("The header {name} is there more than once, with different values.");
                return Err(Error::bad_request(message));
            }
        }
        Ok(())
    }

    /// The text of a header; `None` when it is absent or blank.
    pub fn text(&self, name: &HeaderName) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| Error::bad_request(format!("The value of header {name} is not text.")))?;
        Ok(Some(text.trim()).filter(|text| !text.is_empty()))
    }

    /// Is the header there and `true`?
    pub fn flag(&self, name: &HeaderName) -> bool {
        self.get(name)
            .is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"true"))
    }

    /// The same for a header that says one of the two, or makes no sense: of ours, by which a client may have to rely on the answer.
    pub fn checked_flag(&self, name: &HeaderName) -> Result<bool> {
        let read = |text: &str| match text.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        Ok(self.parsed(name, read)?.unwrap_or(false))
    }

    /// Is the header there and not `false`? For headers whose presence is the message.
    pub fn marked(&self, name: &HeaderName) -> bool {
        self.get(name)
            .is_some_and(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"false"))
    }

    fn parsed<T>(&self, name: &HeaderName, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| invalid(name, text))
    }

    /// The id by which client and server both know this request; a client's own is taken if it is a UUID.
    pub fn activity_id(&self) -> Option<ActivityId> {
        self.get(&name::ACTIVITY_ID)
            .and_then(|value| ActivityId::parse(value.as_bytes()))
    }

    /// What any request may carry. `account` is the account's default consistency, which a request may only weaken.
    pub fn options(&self, account: Consistency) -> Result<Options> {
        let intended = self.parsed(&name::INTENDED_CONTAINER, ResourceId::parse)?;
        Ok(Options {
            session: self
                .parsed(&name::SESSION_TOKEN, SessionToken::parse)?
                .filter(|token| !token.is_empty()),
            consistency: self.consistency(account)?,
            intended_container: match intended {
                Some(rid) => Some(rid),
                None => self.partition()?.and_then(|(container, _)| container),
            },
            hub_only: self.flag(&name::HUB_ONLY),
        })
    }

    fn consistency(&self, account: Consistency) -> Result<Option<Consistency>> {
        let level = self.parsed(&name::CONSISTENCY_LEVEL, consistency_level)?;
        let strategy = self.parsed(&name::READ_CONSISTENCY_STRATEGY, |text| read_strategy(text, account))?;
        let asked = match (level, strategy) {
            (Some(_), Some(_)) => {
                return Err(Error::bad_request(
                    "A request names a consistency level or a read consistency strategy, not both.",
                ));
            }
            (level, strategy) => level.or(strategy.flatten()),
        };
        match asked {
            Some(asked) if asked > account => Err(Error::bad_request(format!(
                "The requested consistency {asked:?} is stronger than the account's, which is {account:?}."
            ))),
            asked => Ok(asked),
        }
    }

    pub fn partition_key(&self) -> Result<Option<PartitionKey>> {
        self.text(&name::PARTITION_KEY)?.map(PartitionKey::parse).transpose()
    }

    /// The physical partition, and the container it was said to be in.
    fn partition(&self) -> Result<Option<(Option<ResourceId>, PartitionId)>> {
        self.parsed(&name::PARTITION_RANGE_ID, |text| {
            let (container, id) = match text.rsplit_once(',') {
                Some((rid, id)) => (Some(ResourceId::parse(rid.trim())?), id.trim()),
                None => (None, text),
            };
            Some((container, PartitionId(id.parse().ok()?)))
        })
    }

    pub fn partition_id(&self) -> Result<Option<PartitionId>> {
        Ok(self.partition()?.map(|(_, id)| id))
    }

    /// Which part of a container a feed or query is about.
    pub fn feed_target(&self) -> Result<FeedTarget> {
        if self
            .text(&name::READ_KEY_TYPE)?
            .is_some_and(|kind| kind.eq_ignore_ascii_case("EffectivePartitionKey"))
        {
            return Err(Error::bad_request(
                "Reads by a single effective partition key are not supported; name a range.",
            ));
        }
        let epk = |name| self.parsed(name, |text| Epk::parse(text).filter(|_| text.len() <= EPK_DIGITS_MAX));
        let (epk_min, epk_max) = (epk(&name::START_EPK)?, epk(&name::END_EPK)?);
        if let (Some(min), Some(max)) = (&epk_min, &epk_max)
            && min >= max
        {
            // Not "gone": a client would look for a range that never was, again and again.
            return Err(Error::bad_request(
                "The range of effective partition keys ends before it begins.",
            ));
        }
        Ok(FeedTarget {
            partition_key: self.partition_key()?,
            partition: self.partition_id()?,
            epk_min,
            epk_max,
        })
    }

    pub fn page(&self) -> Result<Page> {
        let kib = self.parsed(&name::CONTINUATION_LIMIT_KIB, |text| text.parse::<u32>().ok())?;
        Ok(Page {
            n_items_max: self.page_size()?,
            continuation: self.text(&name::CONTINUATION)?.map(str::to_owned),
            continuation_bytes_max: kib.filter(|kib| *kib > 0).map(|kib| kib as usize * 1024),
        })
    }

    /// `-1` leaves the size to the server, and so does zero.
    fn page_size(&self) -> Result<Option<usize>> {
        let Some(text) = self.text(&name::MAX_ITEM_COUNT)? else {
            return Ok(None);
        };
        match text.parse::<i32>() {
            Ok(-1 | 0) => Ok(None),
            Ok(size) if size > 0 => Ok(Some(size as usize)),
            _ => Err(Error::bad_request(format!(
                "The input PageSize {} is invalid. Ensure to pass a valid page size which must be a positive integer or \
                 -1 for a dynamic page size",
                shorten(text)
            ))),
        }
    }

    /// The condition of a read: only a version the client does not have is worth sending.
    pub fn read_precondition(&self) -> Result<Precondition> {
        Ok(self
            .text(&name::IF_NONE_MATCH)?
            .map_or(Precondition::None, |tag| Precondition::IfNoneMatch(tag.to_owned())))
    }

    /// The condition of a write.
    pub fn write_precondition(&self) -> Result<Precondition> {
        match self.text(&name::IF_MATCH)? {
            Some(tag) => Ok(Precondition::IfMatch(tag.to_owned())),
            None => self.read_precondition(),
        }
    }

    /// How what a write stores is to be indexed.
    pub fn indexing_directive(&self) -> Result<IndexingDirective> {
        let named = self.parsed(&name::INDEXING_DIRECTIVE, IndexingDirective::parse)?;
        Ok(named.unwrap_or_default())
    }

    /// The tag of the last page of a polled feed.
    pub fn since(&self) -> Result<Option<String>> {
        Ok(self.text(&name::IF_NONE_MATCH)?.map(str::to_owned))
    }

    /// Where a change feed starts: a tag wins over a time.
    pub fn feed_start(&self) -> Result<FeedStart> {
        match self.text(&name::IF_NONE_MATCH)? {
            Some("*") => return Ok(FeedStart::Now),
            Some(tag) => return Ok(FeedStart::After(tag.to_owned())),
            None => {}
        }
        Ok(self.modified_since()?.map_or(FeedStart::Beginning, FeedStart::Time))
    }

    /// The time that a client asks for beside a tag, if it understands that both apply: times and positions are in different
    /// orders where partitions were merged.
    pub fn feed_newer_than(&self) -> Result<Option<u64>> {
        const START_TIME_AFTER_MERGE: u32 = 2;
        let capabilities = self
            .text(&name::SDK_CAPABILITIES)?
            .and_then(|text| text.parse::<u32>().ok());
        let both = capabilities.is_some_and(|bits| bits & START_TIME_AFTER_MERGE != 0);
        if both { self.modified_since() } else { Ok(None) }
    }

    /// How long a reader of changes is willing to wait, in milliseconds.
    pub fn feed_wait_ms(&self) -> Result<u64> {
        Ok(self
            .parsed(&name::FEED_WAIT_MS, |text| text.parse::<u32>().ok())?
            .unwrap_or(0)
            .into())
    }

    /// Where a reader of all versions may begin, beyond what the service allows.
    pub fn feed_from_history(&self) -> Result<FromHistory> {
        let read = |text: &str| match text.to_ascii_lowercase().as_str() {
            "true" => Some(FromHistory::Yes),
            "oldest" => Some(FromHistory::Oldest),
            "false" => Some(FromHistory::No),
            _ => None,
        };
        Ok(self.parsed(&name::FEED_FROM_HISTORY, read)?.unwrap_or_default())
    }

    /// Seconds since 1970. The first moment there is stands for the beginning of time.
    fn modified_since(&self) -> Result<Option<u64>> {
        let Some(text) = self.text(&name::IF_MODIFIED_SINCE)? else {
            return Ok(None);
        };
        if is_before_1970(text) {
            return Ok(None);
        }
        // Go names the zone as the zone is called, not as HTTP calls it.
        let date = text.strip_suffix("UTC").map(|date| [date, "GMT"].concat());
        let time = httpdate::parse_http_date(date.as_deref().unwrap_or(text))
            .ok()
            .and_then(seconds);
        time.map(Some).ok_or_else(|| invalid(&name::IF_MODIFIED_SINCE, text))
    }

    /// Has the client no use for the content of what it writes?
    pub fn prefers_minimal(&self) -> Result<bool> {
        let prefers = |text: &str| {
            text.split([',', ';'])
                .any(|word| word.trim().eq_ignore_ascii_case("return=minimal"))
        };
        Ok(self.text(&name::PREFER)?.is_some_and(prefers))
    }

    pub fn throughput(&self) -> Result<Option<Throughput>> {
        Throughput::from_headers(self.text(&name::OFFER_THROUGHPUT)?, self.text(&name::OFFER_AUTOPILOT)?)
    }

    pub fn migration(&self) -> Result<Migration> {
        match (
            self.flag(&name::MIGRATE_TO_AUTOPILOT),
            self.flag(&name::MIGRATE_TO_MANUAL),
        ) {
            (true, true) => Err(Error::bad_request("An offer cannot be migrated both ways at once.")),
            (true, false) => Ok(Migration::ToAutoscale),
            (false, true) => Ok(Migration::ToManual),
            (false, false) => Ok(Migration::None),
        }
    }

    /// What the client's query engine can do.
    pub fn query_features(&self) -> Result<Vec<String>> {
        let list = self.text(&name::SUPPORTED_QUERY_FEATURES)?.unwrap_or_default();
        Ok(list
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// Does a POST to a feed ask a question rather than create something?
    pub fn is_query(&self) -> bool {
        self.flag(&name::IS_QUERY) || self.flag(&name::IS_QUERY_LEGACY) || self.has_query_content_type()
    }

    fn has_query_content_type(&self) -> bool {
        let is_query = |value: &HeaderValue| {
            let media_type = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
            media_type.trim_ascii().eq_ignore_ascii_case(b"application/query+json")
        };
        self.get(&name::CONTENT_TYPE).is_some_and(is_query)
    }

    /// Which kind of change feed is asked for, if any.
    pub fn feed_mode(&self) -> Result<Option<FeedMode>> {
        self.parsed(&name::A_IM, |text| {
            match text.to_ascii_lowercase().replace([' ', '-'], "").as_str() {
                "incrementalfeed" => Some(FeedMode::LatestVersions),
                "fullfidelityfeed" => Some(FeedMode::AllVersions),
                _ => None,
            }
        })
    }
}

/// One of 128 bits for a name. Names that share theirs only cost a look into the map.
fn mark(name: &HeaderName) -> u128 {
    let name = name.as_str().as_bytes();
    let letter = |index: usize| usize::from(name.get(index).copied().unwrap_or_default());
    let (middle, last) = (letter(name.len() / 2), letter(name.len().saturating_sub(1)));
    1 << ((name.len() + 5 * middle + 11 * last) % 128)
}

fn consistency_level(text: &str) -> Option<Consistency> {
    const LEVELS: [(&str, Consistency); 5] = [
        ("Eventual", Consistency::Eventual),
        ("ConsistentPrefix", Consistency::ConsistentPrefix),
        ("Session", Consistency::Session),
        ("BoundedStaleness", Consistency::BoundedStaleness),
        ("Strong", Consistency::Strong),
    ];
    LEVELS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, level)| *level)
}

/// `Some(None)`: the account's default will do. The latest committed state of a region is what every read here starts
/// from, so asking for it only relaxes a strong account.
fn read_strategy(text: &str, account: Consistency) -> Option<Option<Consistency>> {
    match text.to_ascii_lowercase().as_str() {
        "default" => Some(None),
        "eventual" => Some(Some(Consistency::Eventual)),
        "session" => Some(Some(Consistency::Session)),
        "latestcommitted" => Some(Some(account.min(Consistency::BoundedStaleness))),
        "globalstrong" => Some(Some(Consistency::Strong)),
        _ => None,
    }
}

/// Clients write the least date they have for "the beginning", in a year that a date of HTTP need not reach back to.
fn is_before_1970(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let year = words.nth(3).filter(|_| words.clone().count() == 2);
    year.is_some_and(|year| year.len() == 4 && year.parse::<u32>().is_ok_and(|year| year < 1970))
}

fn seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .map(|since| since.as_secs())
}

fn invalid(name: &HeaderName, text: &str) -> Error {
    Error::bad_request(format!(
        "The value '{}' specified for the header '{name}' is invalid.",
        shorten(text)
    ))
}

/// The beginning of a text, for messages.
fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests;
