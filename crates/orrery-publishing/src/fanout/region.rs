//! The fan-out of a region: it runs the roles of all accounts whose writes it takes, its own one as a rule, another region's
//! after a failover, and gives a role back when the writes return.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::placement::{Move, ask_again_after, next_move};
use super::role::{Role, RunningRole, SourceLease, SourceState};
use super::settings::{FanoutSettings, told_of_move};
use crate::database::ContentPublishDatabase;
use crate::error::Cause;

/// The fan-out of a region.
#[derive(Clone, Debug)]
pub struct Fanout {
    /// In the order of the accounts.
    roles: Vec<Role>,
    /// Which of them is the region's own.
    own: usize,
    settings: FanoutSettings,
}

impl Fanout {
    pub fn new(database: &ContentPublishDatabase, settings: FanoutSettings) -> Fanout {
        let own = database.local().tag();
        let accounts = database.accounts();
        let own = accounts.iter().position(|account| account.tag() == own);
        let database = database.unhedged();
        Fanout {
            roles: (0..accounts.len())
                .map(|index| Role::new(database.of_account(index), settings.clone()))
                .collect(),
            own: own.expect("the own account is one of the accounts"),
            settings,
        }
    }

    /// Begins to run the roles that belong here. An account that cannot be reached is asked again until it can.
    pub fn start(&self) -> RunningFanout {
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let held: Vec<Held> = self.roles.iter().map(|_| Held::default()).collect();
        for (role, held) in self.roles.iter().zip(&held) {
            let keeper = Keeper {
                role: role.clone(),
                held: Arc::clone(held),
                settings: self.settings.clone(),
                n_silent: 0,
            };
            tasks.spawn(keeper.keep(stopping.clone()));
        }
        tasks.close();
        RunningFanout {
            fanout: self.clone(),
            held,
            stopping,
            tasks,
        }
    }

    fn role_of(&self, account: &str) -> Option<&Role> {
        self.roles.iter().find(|role| role.account() == account)
    }

    /// How far the role of the region's own account is behind, whoever runs it.
    pub async fn states(&self) -> Vec<SourceState> {
        self.roles[self.own].states().await
    }

    /// Who reads which part of which account's feed for an account's subscribers, and how far.
    pub async fn leases(&self, account: &str) -> Vec<SourceLease> {
        match self.role_of(account) {
            Some(role) => role.leases().await,
            None => Vec::new(),
        }
    }

    /// Handles the dead letters of the region's own account again, with the articles as they are now. Gives the number handled.
    pub async fn replay_dead_letters(&self) -> Result<usize, Cause> {
        self.roles[self.own].replay_dead_letters().await
    }
}

/// A role while it runs here.
type Held = Arc<Mutex<Option<Arc<RunningRole>>>>;

fn lock(held: &Held) -> std::sync::MutexGuard<'_, Option<Arc<RunningRole>>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts and stops one account's role in this region.
struct Keeper {
    role: Role,
    held: Held,
    settings: FanoutSettings,
    /// Questions in a row without an answer.
    n_silent: u32,
}

impl Keeper {
    async fn keep(mut self, stopping: CancellationToken) {
        loop {
            // A question may be dropped; a move is made to its end.
            let writes_at = tokio::select! {
                () = stopping.cancelled() => break,
                writes_at = self.role.write_region() => writes_at,
            };
            let writes_at = writes_at.unwrap_or_else(|error| {
                tracing::debug!(account = self.role.account(), %error, "nobody says where the account takes writes");
                None
            });
            self.n_silent = if writes_at.is_some() { 0 } else { self.n_silent + 1 };
            self.place(writes_at.as_deref()).await;
            let pause = ask_again_after(self.settings.place_every, self.n_silent);
            tokio::select! {
                () = stopping.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                () = told_of_move(&mut self.settings.moves) => {}
            }
        }
        self.let_go().await;
    }

    async fn place(&self, writes_at: Option<&str>) {
        let is_running = lock(&self.held).is_some();
        let (account, region) = (self.role.account(), self.role.region());
        match next_move(is_running, region, writes_at) {
            Move::Stay => {}
            Move::Start => {
                tracing::info!(account, region, "fan-out of an account runs here now");
                *lock(&self.held) = Some(Arc::new(self.role.start()));
            }
            Move::Stop => {
                tracing::info!(
                    account,
                    to = writes_at,
                    "fan-out of an account has moved with its writes"
                );
                self.let_go().await;
            }
        }
    }

    async fn let_go(&self) {
        let running = lock(&self.held).take();
        if let Some(running) = running {
            running.stop().await;
        }
    }
}

/// A region's fan-out at work. Dropping it stops it, without waiting.
#[derive(Debug)]
pub struct RunningFanout {
    fanout: Fanout,
    held: Vec<Held>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl RunningFanout {
    pub fn role(&self) -> &Fanout {
        &self.fanout
    }

    /// The accounts whose roles run here now.
    pub fn holds(&self) -> Vec<String> {
        let roles = self.fanout.roles.iter().zip(&self.held);
        let held = roles.filter(|(_, held)| lock(held).is_some());
        held.map(|(role, _)| role.account().to_owned()).collect()
    }

    /// How far the own account's role is behind, and those that run here for other accounts; with whether this process reads
    /// the source.
    pub async fn states(&self) -> Vec<SourceState> {
        let own = self.fanout.roles[self.fanout.own].account();
        let mut accounts = vec![own.to_owned()];
        accounts.extend(self.holds().into_iter().filter(|account| account != own));
        let mut states = Vec::new();
        for account in accounts {
            states.extend(self.states_of(&account).await);
        }
        states
    }

    /// The same of one account's role.
    pub async fn states_of(&self, account: &str) -> Vec<SourceState> {
        let mut roles = self.fanout.roles.iter().zip(&self.held);
        let Some((role, held)) = roles.find(|(role, _)| role.account() == account) else {
            return Vec::new();
        };
        let running = lock(held).clone();
        let mut states = role.states().await;
        for (source, state) in states.iter_mut().enumerate() {
            state.running = running.as_ref().is_some_and(|running| running.reads(source));
        }
        states
    }

    /// Lets what is under way finish and its positions be saved.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for RunningFanout {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}
