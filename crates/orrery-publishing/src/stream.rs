//! New notifications as they appear, for users who are looking at this moment.
//!
//! A hub reads the change feeds of all accounts from its own region, from now on, and hands each notification to the listeners
//! of its user. Nothing is kept: a listener who was away reads the feed. Invariant: a slow listener loses events and is told so;
//! it never holds up another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use orrery_processor::store::MemoryLeases;
use orrery_processor::{BatchContext, InstanceName, Poll, Processor, RawBatch, Running, StartFrom};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::database::ContentPublishDatabase;
use crate::entity::{Entity as _, Notification};
use crate::error::Cause;
use crate::supervise::{LONG_POLL, supervise};

/// Events a listener may be behind.
const BACKLOG: usize = 64;

/// What a listener hears.
#[derive(Clone, Debug, PartialEq)]
pub enum HubEvent {
    New(Box<Notification>),
    /// A notification's article was retracted.
    Withdrawn {
        id: String,
    },
    /// The listener was too slow: read the feed again.
    Missed,
}

type Listeners = Arc<Mutex<HashMap<String, broadcast::Sender<HubEvent>>>>;

/// Hands new notifications to those who listen.
#[derive(Debug)]
pub struct NotificationHub {
    listeners: Listeners,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

/// One who listens.
#[derive(Debug)]
pub struct Listener {
    user: String,
    events: broadcast::Receiver<HubEvent>,
    listeners: Listeners,
}

impl NotificationHub {
    /// Begins to read every account's changes from now on.
    pub fn start(database: &ContentPublishDatabase, poll: Poll) -> NotificationHub {
        let database = database.unhedged();
        let hub = NotificationHub {
            listeners: Listeners::default(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        for account in 0..database.accounts().len() {
            let (database, listeners, stopping) = (database.clone(), Arc::clone(&hub.listeners), hub.stopping.clone());
            hub.tasks.spawn(async move {
                let start = || {
                    let (database, listeners) = (database.clone(), Arc::clone(&listeners));
                    async move { start_source(&database, account, listeners, poll).await }.boxed()
                };
                supervise("notification-hub", &stopping, start, |_| {}).await;
            });
        }
        hub.tasks.close();
        hub
    }

    pub fn listen(&self, user: &str) -> Listener {
        let mut listeners = lock(&self.listeners);
        let sender = listeners
            .entry(user.to_owned())
            .or_insert_with(|| broadcast::Sender::new(BACKLOG));
        Listener {
            user: user.to_owned(),
            events: sender.subscribe(),
            listeners: Arc::clone(&self.listeners),
        }
    }

    pub fn n_listeners(&self) -> usize {
        lock(&self.listeners)
            .values()
            .map(broadcast::Sender::receiver_count)
            .sum()
    }

    pub async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for NotificationHub {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl Listener {
    /// The next event; nothing when the hub has ended.
    pub async fn next(&mut self) -> Option<HubEvent> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(_)) => Some(HubEvent::Missed),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = lock(&self.listeners);
        // This one still counts.
        if listeners
            .get(&self.user)
            .is_some_and(|sender| sender.receiver_count() <= 1)
        {
            listeners.remove(&self.user);
        }
    }
}

fn lock(listeners: &Listeners) -> std::sync::MutexGuard<'_, HashMap<String, broadcast::Sender<HubEvent>>> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn start_source(
    database: &ContentPublishDatabase,
    account: usize,
    listeners: Listeners,
    poll: Poll,
) -> Result<Running, Cause> {
    let connected = database.accounts()[account].connected().await?;
    let delegate = move |batch: RawBatch, _: BatchContext| {
        batch
            .iter()
            .filter_map(|change| change.current.as_ref())
            .for_each(|item| tell(&listeners, item));
        std::future::ready(Ok::<(), Cause>(()))
    };
    let processor = Processor::builder("notification-hub")
        .monitored(&connected.client, connected.content.clone())
        .leases(MemoryLeases::new())
        .instance(InstanceName::new("hub")?)
        .start_from(StartFrom::Now)
        .poll(poll)
        .build_raw(delegate)?;
    Ok(processor.start().await?)
}

fn tell(listeners: &Listeners, item: &Value) {
    if item.get("Type").and_then(Value::as_str) != Some(Notification::TYPE) {
        return;
    }
    let Some(user) = item.get("UserId").and_then(Value::as_str) else {
        return;
    };
    let Some(sender) = lock(listeners).get(user).cloned() else {
        return;
    };
    let Ok(notification) = serde_json::from_value::<Notification>(item.clone()) else {
        return;
    };
    let event = match notification.withdrawn_at {
        Some(_) => HubEvent::Withdrawn { id: notification.id },
        // Marked as read is no news.
        None if notification.read_at.is_some() => return,
        None => HubEvent::New(Box::new(notification)),
    };
    // Whoever left meanwhile needs no event.
    let _ = sender.send(event);
}

/// How often a hub asks servers that do not hold an answer back.
pub fn hub_poll() -> Poll {
    Poll::every(Duration::from_secs(1)).with_long_poll(LONG_POLL)
}
