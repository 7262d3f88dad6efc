//! A node as a member of its cluster: holds the coordinator's lease or waits for it, holds a tenure of its own, and owns the
//! logs that it is to own.
//!
//! One task does it all, in turns: look at the shared records, renew what is held, do what they ask for, wait for something
//! to happen. What takes longer than a turn, opening and closing logs, runs beside it, one piece at a time, so that
//! leases are renewed meanwhile. [`super::coordinating`] is what only the coordinator does, [`super::owning`] how logs are
//! taken and given up.
//!
//! Invariant: this node answers for a log only between the end of its opening and the loss of the tenure or lease that it is
//! owned by; requests are told of the loss before anything else is done about it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use orrery_node::cluster::lease::{Revision, Step, Tenancy, Times};
use orrery_node::cluster::placement::Placement;
use orrery_node::cluster::tenures::Tenures;
use orrery_storage::NatsStore;
use orrery_storage::nats::Following;
use orrery_storage::nats::roster::{Roster, Written};
use tokio_util::sync::CancellationToken;

use super::owning::Work;
use super::records::{self, LEASE, NodeRecord, PLACEMENT, tenure_key};
use super::station::{Routes, Station};

/// Tries to write a record that others may write as well, before it is left to the next turn.
pub(super) const ATTEMPTS: usize = 5;

/// What the task works with.
pub struct Member {
    pub station: Arc<Station>,
    pub store: Arc<NatsStore>,
    pub roster: Roster,
    pub record: NodeRecord,
    pub times: Times,
    /// Hands over what this node owns, and takes nothing more.
    pub leave: CancellationToken,
    /// Ends the task.
    pub end: CancellationToken,
}

impl Member {
    pub async fn run(self) {
        let me = &self.record.id;
        let mut running = Running {
            lease: Tenancy::new(me, self.times),
            seat: Tenancy::new(me, self.times),
            tenures: Tenures::default(),
            tenures_read_at: None,
            placement: None,
            joining: BTreeMap::new(),
            leading: Leading::Not,
            work: None,
            idle_until: Duration::ZERO,
            left: false,
            told_at: None,
            _following: self.store.follow(),
            member: self,
        };
        running.run().await;
    }
}

/// How far this node has come with coordinating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leading {
    Not,
    /// The lease is held, and everything is about to be opened.
    Begins,
    /// Everything is being opened.
    Opens,
    Leads,
    /// The lease is lost, the system log still to be closed.
    Ceases,
}

pub(super) struct Running {
    pub(super) member: Member,
    pub(super) lease: Tenancy,
    /// This node's own tenure.
    pub(super) seat: Tenancy,
    pub(super) tenures: Tenures,
    pub(super) tenures_read_at: Option<Duration>,
    /// As it was last read or written; its version is `None` while there is no such record.
    pub(super) placement: Option<(Arc<Placement>, Option<Revision>)>,
    /// Members of a placement that may have been written.
    pub(super) joining: BTreeMap<String, u64>,
    pub(super) leading: Leading,
    pub(super) work: Option<Work>,
    /// Begins nothing before, after something failed.
    pub(super) idle_until: Duration,
    pub(super) left: bool,
    /// When the others were last told of this node.
    told_at: Option<Duration>,
    _following: Following,
}

enum Woken {
    ToLook,
    /// A piece of work has ended.
    Worked,
    /// A log turned out to be another's.
    Fenced,
    ToLeave,
    ToEnd,
}

impl Running {
    async fn run(&mut self) {
        const KEYS: &[&str] = &[LEASE, PLACEMENT];
        let mut changes = self.member.roster.changes(KEYS).await.ok();
        loop {
            self.turn().await;
            let (leave, end) = (self.member.leave.clone(), self.member.end.clone());
            let station = Arc::clone(&self.member.station);
            let pause = self.member.times.renew / 4;
            let (work, left) = (&mut self.work, self.left);
            let mut charges = station.watch_charge();
            let woken = tokio::select! {
                // All are safe to drop: a change that is missed is found at the next look.
                _ = charges.changed() => Woken::ToLook,
                () = end.cancelled() => Woken::ToEnd,
                () = leave.cancelled(), if !left => Woken::ToLeave,
                () = super::owning::ended(work) => Woken::Worked,
                () = station.node.fenced() => Woken::Fenced,
                () = station.pinned.notified() => Woken::ToLook,
                changed = next(&mut changes) => {
                    if changed.is_none() {
                        changes = None;
                    }
                    Woken::ToLook
                }
                () = tokio::time::sleep(pause) => {
                    if changes.is_none() {
                        changes = self.member.roster.changes(KEYS).await.ok();
                    }
                    Woken::ToLook
                }
            };
            match woken {
                Woken::ToLook => {}
                Woken::Worked => self.finish_work().await,
                Woken::Fenced => self.fenced().await,
                Woken::ToLeave => self.leave().await,
                Woken::ToEnd => return self.end().await,
            }
        }
    }

    /// Looks at the records and does what it takes.
    async fn turn(&mut self) {
        self.look().await;
        self.hold_lease().await;
        self.hold_seat().await;
        self.heed_charge().await;
        self.show();
        if self.leading == Leading::Leads {
            self.coordinate().await;
        } else {
            self.watch_tenures().await;
        }
        self.begin_work().await;
        self.show();
        self.tell().await;
    }

    async fn look(&mut self) {
        let key = tenure_key(&self.member.record.id);
        let roster = &self.member.roster;
        let (lease, seat, placement) = tokio::join!(roster.get(LEASE), roster.get(&key), roster.get(PLACEMENT));
        let now = self.member.station.now();
        for (found, tenancy) in [(lease, &mut self.lease), (seat, &mut self.seat)] {
            match found {
                Ok(found) => {
                    let read = |bytes: &[u8]| records::lease_from_bytes(bytes);
                    tenancy.observe(found.and_then(|entry| Some((read(&entry.value)?, entry.revision))), now);
                    self.member.station.set_heard();
                }
                Err(error) => tracing::warn!(%error, "a lease cannot be read now"),
            }
        }
        match placement {
            Ok(found) => self.learn_placement(found),
            Err(error) => tracing::warn!(%error, "where logs are cannot be read now"),
        }
    }

    pub(super) fn learn_placement(&mut self, found: Option<orrery_storage::nats::roster::Entry>) {
        let known = self.placement.as_ref().and_then(|(_, revision)| *revision);
        match found {
            // An answer from before what is known.
            Some(entry) if known.is_some_and(|known| entry.revision <= known) => {}
            Some(entry) => match records::placement_from_bytes(&entry.value) {
                Some(placement) => self.placement = Some((Arc::new(placement), Some(entry.revision))),
                None => tracing::error!("what says where logs are cannot be understood"),
            },
            None if known.is_none() => self.placement = Some((Arc::default(), None)),
            None => {}
        }
    }

    /// Where logs are, as far as this node knows.
    pub(super) fn placement(&self) -> Arc<Placement> {
        self.placement
            .as_ref()
            .map(|(placement, _)| Arc::clone(placement))
            .unwrap_or_default()
    }

    async fn hold_lease(&mut self) {
        let now = self.member.station.now();
        self.lease.set_willing(!self.left && now >= self.idle_until);
        // If the record is lost, terms must go on all the same: the placement is bound to them.
        self.lease.rise_above(self.placement().term);
        match self.lease.next(now) {
            Step::Wait => {}
            Step::StepDown => self.stop_leading(),
            Step::Write { lease, over } => {
                let bytes = records::lease_to_bytes(&lease);
                match self.member.roster.write(LEASE, bytes, over).await {
                    Written::Stored(revision) => self.lease.wrote(lease, revision, now),
                    // The next look tells who was faster.
                    Written::Refused => {}
                    Written::Unsure => self.lease.unsure(),
                }
            }
        }
        let station = &self.member.station;
        if self.lease.holds(station.now()) && self.leading == Leading::Not && station.charge().is_some() {
            tracing::info!("this node takes over");
            self.leading = Leading::Begins;
        }
    }

    /// While another region takes writes, the lease only says who acts for this one, and no log is anybody's here.
    async fn heed_charge(&mut self) {
        if self.member.station.charge().is_some() {
            return;
        }
        if matches!(self.leading, Leading::Begins | Leading::Opens | Leading::Leads) {
            self.stop_leading();
        }
        let holds = self.lease.holds(self.member.station.now());
        if holds && !self.placement().logs.is_empty() {
            self.bring_all_home().await;
        }
    }

    async fn hold_seat(&mut self) {
        let now = self.member.station.now();
        self.seat.set_willing(!self.left);
        match self.seat.next(now) {
            Step::Wait => {}
            // What rests on it is given up with the next step: nothing is entitled to it any more.
            Step::StepDown => self.member.station.set_tenure(None),
            Step::Write { lease, over } => {
                let key = tenure_key(&self.member.record.id);
                let bytes = records::lease_to_bytes(&lease);
                match self.member.roster.write(&key, bytes, over).await {
                    Written::Stored(revision) => self.seat.wrote(lease, revision, now),
                    Written::Refused => {}
                    Written::Unsure => self.seat.unsure(),
                }
            }
        }
    }

    /// The term of this node's tenure, if it is a member in it.
    pub(super) fn seated(&self) -> Option<u64> {
        let term = self.seat.term(self.member.station.now()).filter(|_| !self.left)?;
        let placement = self.placement();
        (placement.members.get(&self.member.record.id) == Some(&term)).then_some(term)
    }

    /// Tells requests who executes them.
    pub(super) fn show(&self) {
        let station = &self.member.station;
        let leads = self.leading == Leading::Leads;
        station.set_steward(self.lease.holds(station.now()) && !self.left);
        if let (Leading::Opens, Some(until)) = (self.leading, self.lease.held_until()) {
            // What is left undone is finished before anybody is told that this node coordinates.
            station.extend_lead(until);
        }
        station.set_lease(self.lease.held_until().filter(|_| leads));
        station.set_tenure(self.seat.held_until().filter(|_| self.seated().is_some()));
        let lease = self.lease.lease().filter(|lease| lease.serving);
        let holder = lease.and_then(|lease| lease.holder.clone());
        let placement = self.placement();
        station.set_routes(Routes {
            coordinator: holder.filter(|holder| leads || *holder != self.member.record.id),
            confirming: placement.members.keys().chain(self.joining.keys()).cloned().collect(),
            placement,
        });
    }

    /// Stops to act as the coordinator, at once; the system log is closed as soon as may be.
    pub(super) fn stop_leading(&mut self) {
        self.member.station.set_lease(None);
        if self.leading != Leading::Not {
            tracing::info!("this node coordinates no longer");
            self.leading = Leading::Ceases;
        }
    }

    /// A log was refused. One that is this node's is opened anew; if it is the system log, another coordinates.
    async fn fenced(&mut self) {
        if self.leading == Leading::Leads && !self.member.station.node.proves_ownership().await {
            self.stop_leading();
            self.release_lease().await;
        }
    }

    /// Hands over what this node owns; requests that still come are passed on.
    async fn leave(&mut self) {
        self.left = true;
        let station = Arc::clone(&self.member.station);
        station.set_leaving();
        station.set_tenure(None);
        station.set_lease(None);
        station.stir();
        super::owning::ended_or_none(&mut self.work).await;
        self.work = None;
        let owned = station.node.owned_logs();
        if let Err(error) = station.node.disown(&owned).await {
            tracing::warn!(%error, "logs are left to be taken");
        }
        if self.leading != Leading::Not {
            if let Err(error) = station.node.cease_to_lead().await {
                tracing::warn!(%error, "the system log is left to be taken");
            }
            self.leading = Leading::Not;
        }
        self.leave_placement().await;
        self.release_seat().await;
        self.release_lease().await;
        self.show();
    }

    /// Gives the lease back, so that nobody has to wait until it expires.
    pub(super) async fn release_lease(&mut self) {
        for _ in 0..ATTEMPTS {
            let Some((lease, over)) = self.lease.release() else {
                return;
            };
            let now = self.member.station.now();
            let bytes = records::lease_to_bytes(&lease);
            match self.member.roster.write(LEASE, bytes, Some(over)).await {
                Written::Stored(revision) => return self.lease.wrote(lease, revision, now),
                Written::Refused | Written::Unsure => self.look().await,
            }
        }
    }

    async fn release_seat(&mut self) {
        for _ in 0..ATTEMPTS {
            let Some((lease, over)) = self.seat.release() else {
                return;
            };
            let (now, key) = (self.member.station.now(), tenure_key(&self.member.record.id));
            let bytes = records::lease_to_bytes(&lease);
            match self.member.roster.write(&key, bytes, Some(over)).await {
                Written::Stored(revision) => return self.seat.wrote(lease, revision, now),
                Written::Refused | Written::Unsure => self.look().await,
            }
        }
    }

    /// Tells the others that this node is there, now and then.
    async fn tell(&mut self) {
        let now = self.member.station.now();
        let role = match (self.leading, self.left) {
            (_, true) => "leaves",
            (Leading::Not | Leading::Ceases, _) => "serves",
            (Leading::Begins | Leading::Opens, _) => "opens",
            (Leading::Leads, _) => "coordinates",
        };
        let record = &mut self.member.record;
        let is_due = self.told_at.is_none_or(|told| now >= told + self.member.times.renew);
        if !is_due && record.role == role {
            return;
        }
        record.role = role.to_owned();
        let positions = self.member.station.node.positions();
        record.logs = positions
            .iter()
            .map(|(log, position)| (log.0, position.lsn.0))
            .collect();
        self.told_at = Some(now);
        if let Err(error) = self.member.roster.put(&record.key(), records::to_bytes(record)).await {
            tracing::debug!(%error, "the other nodes cannot be told now");
        }
    }

    async fn end(&mut self) {
        if !self.left {
            self.leave().await;
        }
        // Whoever looks at the nodes sees that it is gone, or how old its word is.
        let _ = self.member.roster.remove(&self.member.record.key()).await;
    }
}

/// The next change; never while nobody tells.
async fn next(changes: &mut Option<impl futures::Stream<Item = ()> + Unpin>) -> Option<()> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}
