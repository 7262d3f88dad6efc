//! What a host makes of finding its lease changed under it.
//!
//! Every write of a lease is conditioned on the document it was made from. When that fails, the fresh document decides:
//! nobody guesses from clocks. Invariant: a host goes on only if the document still names it and its own incarnation.

use super::{HostMark, Lease};

/// What the fresh document says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Still ours: apply the change to this document and write again.
    StillMine,
    /// Somebody else's, or nobody's.
    Lost { to: Option<String> },
    /// Another process runs under our name, and started later. It goes on; we stop.
    NewerNamesake,
    /// Another process runs under our name, and started earlier; it has yet to notice us.
    OlderNamesake,
}

/// Judges the stored document against who we are.
pub fn judge(fresh: &Lease, me: &HostMark) -> Conflict {
    if fresh.owner() != Some(me.name.as_str()) {
        return Conflict::Lost {
            to: fresh.owner().map(str::to_owned),
        };
    }
    match fresh.incarnation() {
        Some(other) if other > me.incarnation => Conflict::NewerNamesake,
        Some(other) if other < me.incarnation => Conflict::OlderNamesake,
        _ => Conflict::StillMine,
    }
}
