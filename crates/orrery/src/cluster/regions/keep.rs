//! What a region wrote that the account goes on without: sent to the region that takes writes now, and kept there as conflicts,
//! before the region gives it up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_model::{Epk, Error, LogId, Lsn, ResourceId, Result, Status};
use orrery_node::Node;
use orrery_node::cluster::{CutOff, Suffix};
use orrery_node::geo::topology::Region;
use orrery_storage::nats::calls::Answerer;

use super::office::Office;
use super::records::{CutOffRecord, KeepAnswer, KeepRequest, store_of};
use crate::cluster::records::to_bytes;

/// How long keeping a part of it may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a node of a store is asked to keep versions.
pub fn subject(store: &str, node: &str) -> String {
    format!("orrery.{store}.keep.{node}")
}

/// Whether a copy has anything that is not part of the account, given where each log was cut off. A log that was not known then
/// is none of the account's.
pub fn has_parted(positions: &BTreeMap<LogId, Lsn>, cut_off: &BTreeMap<LogId, Lsn>) -> bool {
    let is_beyond = |(log, lsn): (&LogId, &Lsn)| cut_off.get(log).is_none_or(|cut| lsn > cut);
    !cut_off.is_empty() && positions.iter().any(is_beyond)
}

/// Has everything kept that this region has beyond where it was cut off.
pub async fn rescue(office: &Office, writer: &str, own: &Region) -> Result<()> {
    let peer = office.geography.reachable(writer);
    let peer = peer.ok_or_else(|| Error::new(Status::UNAVAILABLE, "The region that takes writes is not heard of."))?;
    let subject = subject(&store_of(writer), &peer.record.node);
    for (log, lsn) in office.positions() {
        let mut after = own.cut_off.get(&log).copied().unwrap_or(Lsn::ZERO);
        if log == LogId::SYSTEM || lsn <= after {
            continue;
        }
        let mut n_kept = 0;
        while let Some(suffix) = office.station.node.suffix(log, after).await? {
            after = suffix.last;
            n_kept += send(office, &subject, &own.name, suffix).await?;
        }
        tracing::info!(%log, n_kept, "writes that were lost are kept as conflicts");
    }
    Ok(())
}

async fn send(office: &Office, subject: &str, region: &str, suffix: Suffix) -> Result<usize> {
    if suffix.versions.is_empty() {
        return Ok(0);
    }
    let request = KeepRequest {
        region: region.to_owned(),
        container: suffix.container.to_string(),
        versions: suffix.versions.iter().map(to_record).collect(),
    };
    let lost = || Error::new(Status::UNAVAILABLE, "The region that takes writes did not answer.");
    let answer = office.caller.ask(subject, to_bytes(&request), PATIENCE).await;
    let answer = answer.map_err(|_| lost())?;
    match serde_json::from_slice(&answer).map_err(|_| lost())? {
        KeepAnswer::Kept(n_kept) => Ok(n_kept),
        KeepAnswer::Refused(why) => Err(Error::new(Status::UNAVAILABLE, why)),
    }
}

/// Keeps what other regions send, until there is nobody left to send anything.
pub async fn serve(mut answerer: Answerer, node: Arc<Node>) {
    while let Some(call) = answerer.next().await {
        let answer = match keep(&node, &call.request).await {
            Ok(n_kept) => KeepAnswer::Kept(n_kept),
            Err(error) => KeepAnswer::Refused(error.message().to_owned()),
        };
        call.answer(to_bytes(&answer)).await;
    }
}

async fn keep(node: &Arc<Node>, request: &Bytes) -> Result<usize> {
    let malformed = || Error::bad_request("What is to be kept cannot be understood.");
    let request: KeepRequest = serde_json::from_slice(request).map_err(|_| malformed())?;
    let container = ResourceId::parse(&request.container).ok_or_else(malformed)?;
    let versions: Option<Vec<CutOff>> = request.versions.into_iter().map(from_record).collect();
    node.keep_cut_off(&request.region, &container, &versions.ok_or_else(malformed)?)
        .await
}

fn to_record(version: &CutOff) -> CutOffRecord {
    let epk = version.epk.as_bytes().iter().map(|byte| format!("{byte:02x}"));
    CutOffRecord {
        log: version.log.0,
        lsn: version.lsn.0,
        index: version.index,
        number: version.number,
        epk: epk.collect(),
        id: version.id.clone(),
        body: version.body.clone(),
    }
}

fn from_record(record: CutOffRecord) -> Option<CutOff> {
    Some(CutOff {
        log: LogId(record.log),
        lsn: Lsn(record.lsn),
        index: record.index,
        number: record.number,
        epk: Epk::parse(&record.epk)?,
        id: record.id,
        body: record.body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_was_sent() {
        let version = CutOff {
            log: LogId(7),
            lsn: Lsn(40),
            index: 1,
            number: 9,
            epk: Epk::from_bytes([0, 0x1f, 0xff]),
            id: "i".into(),
            body: Some("{}".into()),
        };
        assert_eq!(from_record(to_record(&version)), Some(version));
    }

    #[test]
    fn a_copy_has_parted_when_any_log_goes_beyond_where_it_was_cut_off() {
        let cut_off = BTreeMap::from([(LogId(0), Lsn(3)), (LogId(1), Lsn(5))]);
        let at = |one: u64, other: u64| BTreeMap::from([(LogId(0), Lsn(one)), (LogId(1), Lsn(other))]);
        assert!(!has_parted(&at(3, 5), &cut_off));
        assert!(!has_parted(&at(2, 1), &cut_off));
        assert!(has_parted(&at(3, 6), &cut_off));
        assert!(
            has_parted(&BTreeMap::from([(LogId(2), Lsn(1))]), &cut_off),
            "nobody else knew it"
        );
        assert!(!has_parted(&at(9, 9), &BTreeMap::new()), "it was never cut off");
    }
}
