//! A node in a region that follows another region of its account: it answers reads from its own view, as far as that has come,
//! and refuses writes as the service does.
//!
//! Unlike a follower beside the owner, it has nobody to pass a read on to: a session read that asks for more than the view has
//! is answered 404/1002, and the client goes to the region that writes.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::{Error, Result, Status};
use tokio::time::Instant;

use crate::account::Account;
use crate::api::{Failure, Reply, Request};
use crate::authorize;
use crate::geo::duty::write_forbidden;
use crate::node::Node;
use crate::partition::Partition;

/// How long a read waits for logs that the catalogue names, and how often it looks.
const OPENING_PATIENCE: Duration = Duration::from_secs(3);
const OPENING_PAUSE: Duration = Duration::from_millis(20);
/// Times a read may be overtaken by a change of what it read from.
const TRIES: usize = 5;

/// Partitions, and the version that session tokens of each had before it was read.
type ReadFrom = Vec<(Arc<Partition>, i64)>;

impl Node {
    /// Tells clients which regions the account has, the one that takes writes first.
    pub fn show_regions(&self, regions: Vec<String>) {
        let account = self.account();
        if account.regions != regions {
            self.set_account(Account {
                regions,
                ..Account::clone(&account)
            });
        }
    }

    /// Executes a request in a region for reading.
    pub async fn execute_as_reader(self: &Arc<Node>, request: Request) -> Result<Reply, Failure> {
        authorize::writes(&request.principal, &request.operation)?;
        if request.options.hub_only || authorize::is_write(&request.operation) {
            return Err(write_forbidden().into());
        }
        for _ in 0..TRIES {
            let read_from = self.opened(&request).await?;
            let answer = self.execute(request.clone()).await;
            if self.is_unchanged(&read_from).await {
                return answer;
            }
        }
        let moved = "What was read is being replaced by what another region has.";
        Err(Error::new(Status::UNAVAILABLE, moved).with_retry_after_ms(100).into())
    }

    /// The partitions a request reads from, once all of them are open: the catalogue tells of a container a moment before its
    /// logs have arrived.
    async fn opened(&self, request: &Request) -> Result<ReadFrom> {
        let deadline = Instant::now() + OPENING_PATIENCE;
        loop {
            if let Some(read_from) = self.read_from(request)? {
                return Ok(read_from);
            }
            if Instant::now() >= deadline {
                let late = "This region knows of the container and has not received all of it yet.";
                return Err(Error::new(Status::UNAVAILABLE, late).with_retry_after_ms(100));
            }
            tokio::time::sleep(OPENING_PAUSE).await;
        }
    }

    /// The partitions a request reads from, with what session tokens say of each before it is read; `None` while one of them is not
    /// open.
    fn read_from(&self, request: &Request) -> Result<Option<ReadFrom>> {
        let Some((container, range)) = self.subject(&request.options, &request.operation) else {
            return Ok(Some(Vec::new()));
        };
        let mut found = Vec::new();
        for entry in container.overlapping(&range) {
            let Ok(partition) = self.partition(entry) else {
                return Ok(None);
            };
            // An entry that came by itself may have brought another version.
            partition.refresh_session_version()?;
            let version = partition.progress().version;
            found.push((partition, version));
        }
        Ok(Some(found))
    }

    /// Whether everything that was read from is there, and in the same version: no token may name a later entry with the
    /// version before.
    async fn is_unchanged(&self, read_from: &ReadFrom) -> bool {
        for (partition, version) in read_from {
            let is_alive = super::answerable::is_alive(&*partition.log).await;
            let refreshed = partition.refresh_session_version().is_ok();
            if !is_alive || !refreshed || partition.progress().version != *version {
                return false;
            }
        }
        true
    }

    /// Opens everything anew, as a follower: the store has begun another history.
    pub async fn start_over(self: &Arc<Node>) -> Result<()> {
        self.duty.set_writes(false);
        let _alone = self.changing_role.lock().await;
        for log in self.open_logs() {
            drop(self.close_partition(log));
        }
        let store = &*self.store;
        let _unchanged = self.control.hold().await;
        self.control
            .reopen_as(store, orrery_partition::storage::Role::Follow)
            .await?;
        self.reload_keys()?;
        self.open_all().await
    }
}
