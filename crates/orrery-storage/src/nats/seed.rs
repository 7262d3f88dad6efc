//! A view being installed: it goes to a file and to the node's copy, the file goes to the servers, and only then a message
//! makes the log.

use std::sync::Arc;

use orrery_model::{LogId, Position};
use orrery_partition::storage::{BoxFuture, Result, Seed, StorageError, Store as _, ViewWrite};

use super::message::{Change, Owner, Standing};
use super::publish::Outcome;
use super::spool::Spool;
use super::{Shared, nonce};

pub(super) struct NatsSeed {
    reserved: Reserved,
    local: Box<dyn Seed>,
    spool: Spool,
}

/// The right to make a log, until it is dropped.
struct Reserved {
    shared: Arc<Shared>,
    log: LogId,
}

impl Reserved {
    fn new(shared: Arc<Shared>, log: LogId) -> Result<Reserved> {
        match shared.seeding().insert(log) {
            true => Ok(Reserved {
                shared: shared.clone(),
                log,
            }),
            false => Err(StorageError::Unavailable(format!("log {log} is being seeded"))),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.shared.seeding().remove(&self.log);
    }
}

impl NatsSeed {
    pub(super) async fn begin(shared: Arc<Shared>, log: LogId) -> Result<NatsSeed> {
        shared.check_writable()?;
        let reserved = Reserved::new(shared.clone(), log)?;
        shared.catch_up(log).await?;
        // Says so when the log exists.
        let local = shared.local.seed(log).await?;
        let spool = Spool::create(&shared.spool_dir)?;
        Ok(NatsSeed { reserved, local, spool })
    }

    async fn finish(self, position: Position) -> Result<()> {
        let NatsSeed { reserved, local, spool } = self;
        let (shared, log) = (reserved.shared.clone(), reserved.log);
        let name = shared.object_name(log);
        spool.upload(&shared.objects, &name).await?;
        let tail = shared.tail(log).await?;
        let mut known = tail.known.lock().await;
        let standing = Standing {
            life: nonce(),
            owner: Owner::default(),
            position,
        };
        let change = Change::Begun {
            saved: Some(name.clone()),
        };
        match tail.add(&mut known, standing, Some(change)).await {
            Outcome::Stored(_) => {}
            Outcome::Conflict => {
                drop(local);
                shared.forget_object(&name).await?;
                tail.catch_up(&shared, &mut known).await?;
                let actual = known.standing.map(|standing| standing.position).unwrap_or_default();
                return Err(StorageError::Fenced { actual });
            }
            Outcome::Unknown(why) => return Err(StorageError::Unknown(why)),
            Outcome::Refused(error) => return Err(error),
        }
        local.finish(position).await.map_err(|error| {
            known.is_certain = false;
            StorageError::Unknown(format!("this node's copy failed: {error}"))
        })
    }
}

impl Seed for NatsSeed {
    fn write(&mut self, writes: Vec<ViewWrite>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.spool.write(&writes).await?;
            self.local.write(writes).await
        })
    }

    fn finish(self: Box<Self>, position: Position) -> BoxFuture<'static, Result<()>> {
        let shared = self.reserved.shared.clone();
        Box::pin(async move { shared.complete((*self).finish(position)).await })
    }
}
