//! A node as a member of its cluster: holds the lease or waits for it, and changes the node's role accordingly.
//!
//! One task does it all, in turns: look at the lease, do what [`Tenancy`] says, wait for something to happen. Opening every log
//! takes longer than a turn and runs beside it, so that the lease is renewed meanwhile.
//!
//! Invariant: requests are executed here only between the end of an opening and the loss of the lease; they are told of the
//! loss before anything else is done about it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use orrery_node::cluster::lease::{Step, Tenancy, Times};
use orrery_storage::NatsStore;
use orrery_storage::nats::Following;
use orrery_storage::nats::roster::{Roster, Written};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::records::{self, LEASE, NodeRecord};
use super::station::{Place, Station};

/// Waited after an opening that failed, so that another node gets its turn.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Tries to give a lease back before it is left to expire.
const RELEASE_ATTEMPTS: usize = 3;

enum Role {
    Follows {
        _following: Following,
    },
    /// Taking every log over.
    Opens(JoinHandle<orrery_model::Result<()>>),
    Owns,
}

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
        let tenancy = Tenancy::new(&self.record.id, self.times);
        let role = Role::Follows {
            _following: self.store.follow(),
        };
        let mut running = Running {
            member: self,
            tenancy,
            role,
            left: false,
            told_at: None,
            idle_until: Duration::ZERO,
        };
        running.run().await;
    }
}

struct Running {
    member: Member,
    tenancy: Tenancy,
    role: Role,
    left: bool,
    /// When the others were last told of this node.
    told_at: Option<Duration>,
    /// Takes no lease before.
    idle_until: Duration,
}

enum Woken {
    ToLook,
    /// An opening has ended.
    Opened(orrery_model::Result<()>),
    /// A log turned out to be another's.
    Fenced,
    ToLeave,
    ToEnd,
}

impl Running {
    async fn run(&mut self) {
        let mut changes = self.member.roster.changes(LEASE).await.ok();
        loop {
            self.turn().await;
            let (leave, end) = (self.member.leave.clone(), self.member.end.clone());
            let node = Arc::clone(&self.member.station.node);
            let pause = self.member.times.renew / 4;
            let (role, left) = (&mut self.role, self.left);
            let woken = tokio::select! {
                // All are safe to drop: a change that is missed is found at the next look.
                () = end.cancelled() => Woken::ToEnd,
                () = leave.cancelled(), if !left => Woken::ToLeave,
                opened = opened(role) => Woken::Opened(opened),
                () = node.fenced() => Woken::Fenced,
                changed = next(&mut changes) => {
                    if changed.is_none() {
                        changes = None;
                    }
                    Woken::ToLook
                }
                () = tokio::time::sleep(pause) => {
                    if changes.is_none() {
                        changes = self.member.roster.changes(LEASE).await.ok();
                    }
                    Woken::ToLook
                }
            };
            match woken {
                Woken::ToLook => {}
                Woken::Opened(opened) => self.opened(opened).await,
                Woken::Fenced => self.fenced().await,
                Woken::ToLeave => self.leave().await,
                Woken::ToEnd => return self.end().await,
            }
        }
    }

    /// Looks at the lease and does what it takes.
    async fn turn(&mut self) {
        self.look().await;
        let now = self.member.station.now();
        self.tenancy.set_willing(!self.left && now >= self.idle_until);
        match self.tenancy.next(now) {
            Step::Wait => {}
            Step::StepDown => self.step_down().await,
            Step::Write { lease, over } => {
                let written = self
                    .member
                    .roster
                    .write(LEASE, records::lease_to_bytes(&lease), over)
                    .await;
                match written {
                    Written::Stored(revision) => self.tenancy.wrote(lease, revision, now),
                    // The next look tells who was faster.
                    Written::Refused => {}
                    Written::Unsure => self.tenancy.unsure(),
                }
            }
        }
        self.begin_opening();
        self.show_place();
        self.tell().await;
    }

    async fn look(&mut self) {
        let found = match self.member.roster.get(LEASE).await {
            Ok(found) => found,
            Err(error) => return tracing::warn!(%error, "the lease cannot be read now"),
        };
        let lease = found.and_then(|entry| Some((records::lease_from_bytes(&entry.value)?, entry.revision)));
        let now = self.member.station.now();
        self.tenancy.observe(lease, now);
        self.member.station.set_heard();
    }

    /// A lease that was just taken: everything is opened.
    fn begin_opening(&mut self) {
        let now = self.member.station.now();
        if !self.tenancy.holds(now) || !matches!(self.role, Role::Follows { .. }) {
            return;
        }
        tracing::info!("this node takes over");
        let (node, store) = (Arc::clone(&self.member.station.node), Arc::clone(&self.member.store));
        self.role = Role::Opens(tokio::spawn(async move {
            store.refresh().await.map_err(orrery_partition::decide::unreadable)?;
            node.take_over().await
        }));
    }

    async fn opened(&mut self, opened: orrery_model::Result<()>) {
        self.role = Role::Owns;
        let now = self.member.station.now();
        match opened {
            Ok(()) if self.tenancy.holds(now) => self.tenancy.serve(now),
            Ok(()) => self.step_down().await,
            Err(error) => {
                tracing::warn!(%error, "this node could not take over");
                self.idle_until = now + PAUSE_AFTER_FAILURE;
                self.step_down().await;
                self.release().await;
            }
        }
    }

    /// Tells requests who executes them.
    fn show_place(&self) {
        let station = &self.member.station;
        let holds = self.tenancy.holds(station.now());
        station.set_tenure(self.tenancy.held_until().filter(|_| matches!(self.role, Role::Owns)));
        let lease = self.tenancy.lease().filter(|lease| lease.serving);
        let holder = lease.and_then(|lease| lease.holder.clone());
        station.set_place(match (&self.role, holder) {
            (Role::Owns, _) if holds => Place::Here,
            (Role::Follows { .. }, Some(holder)) if holder != self.member.record.id => Place::There(holder),
            _ => Place::Nowhere,
        });
    }

    /// Stops to act as the owner, at once, and follows whoever comes next.
    async fn step_down(&mut self) {
        let station = Arc::clone(&self.member.station);
        station.set_tenure(None);
        station.set_place(Place::Nowhere);
        if matches!(self.role, Role::Follows { .. }) {
            return;
        }
        tracing::info!("this node steps down");
        while let Err(error) = station.node.step_down().await {
            tracing::warn!(%error, "this node cannot follow yet");
            if self.member.end.is_cancelled() {
                break;
            }
            tokio::time::sleep(self.member.times.renew).await;
        }
        self.follow();
    }

    fn follow(&mut self) {
        self.role = Role::Follows {
            _following: self.member.store.follow(),
        };
    }

    /// A log was refused: either another node has taken over, or a new epoch was begun here.
    async fn fenced(&mut self) {
        if matches!(self.role, Role::Owns) && !self.member.station.node.proves_ownership().await {
            self.step_down().await;
            self.release().await;
        }
    }

    /// Hands over what this node owns; requests that still come are passed on.
    async fn leave(&mut self) {
        self.left = true;
        self.member.station.set_leaving();
        if let Role::Owns = self.role {
            self.member.station.set_place(Place::Nowhere);
            match self.member.station.node.hand_over().await {
                Ok(()) => self.follow(),
                Err(_) => self.step_down().await,
            }
            self.member.station.set_tenure(None);
        } else {
            self.step_down().await;
        }
        self.release().await;
    }

    /// Gives the lease back, so that nobody has to wait until it expires.
    async fn release(&mut self) {
        for _ in 0..RELEASE_ATTEMPTS {
            let Some((lease, over)) = self.tenancy.release() else {
                return;
            };
            let now = self.member.station.now();
            let bytes = records::lease_to_bytes(&lease);
            match self.member.roster.write(LEASE, bytes, Some(over)).await {
                Written::Stored(revision) => return self.tenancy.wrote(lease, revision, now),
                Written::Refused | Written::Unsure => self.look().await,
            }
        }
    }

    /// Tells the others that this node is there, now and then.
    async fn tell(&mut self) {
        let now = self.member.station.now();
        let role = match (&self.role, self.left) {
            (_, true) => "leaves",
            (Role::Follows { .. }, _) => "follows",
            (Role::Opens(_), _) => "opens",
            (Role::Owns, _) => "owns",
        };
        let record = &mut self.member.record;
        let is_due = self.told_at.is_none_or(|told| now >= told + self.member.times.renew);
        if !is_due && record.role == role {
            return;
        }
        record.role = role.to_owned();
        record.lsn = self
            .member
            .station
            .node
            .positions()
            .values()
            .map(|position| position.lsn.0)
            .sum();
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

/// Completes when an opening ends; never while there is none.
async fn opened(role: &mut Role) -> orrery_model::Result<()> {
    let Role::Opens(opening) = role else {
        return std::future::pending().await;
    };
    let ended = opening.await;
    ended.unwrap_or_else(|error| {
        let status = orrery_model::Status::INTERNAL;
        Err(orrery_model::Error::new(status, "Opening was cut off.").with_source(error))
    })
}

/// The next change; never while nobody tells.
async fn next(changes: &mut Option<impl futures::Stream<Item = ()> + Unpin>) -> Option<()> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}
