//! New notifications as they appear, for users who are looking at this moment.
//!
//! A hub reads the change feeds of all accounts from its own region, from now on, and hands each notification to the listeners
//! of its user, once however many accounts have a copy (`told`). Nothing is kept: a listener who was away reads the feed.
//! Invariants: whoever may have missed something is told so, be it that the listener was too slow or that an account's feed could
//! only now be read; a slow listener never holds up another one.

mod told;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use orrery_processor::store::MemoryLeases;
use orrery_processor::{BatchContext, InstanceName, LeaseTiming, Poll, Processor, RawBatch, Running, StartFrom};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::database::ContentPublishDatabase;
use crate::entity::{Entity as _, Notification};
use crate::error::Cause;
use crate::supervise::{LONG_POLL, supervise};
use told::{Said, Told};

/// Events a listener may be behind.
const BACKLOG: usize = 64;

/// A hub's leases are in its own memory, where nobody else can want them: they need no looking after unless one is lost.
const UNCONTESTED: LeaseTiming = LeaseTiming {
    acquire: Duration::from_secs(13),
    renew: Duration::from_secs(3600),
    expiry: Duration::from_secs(3 * 3600),
    lock: Duration::from_secs(30),
};

/// What a listener hears.
#[derive(Clone, Debug, PartialEq)]
pub enum HubEvent {
    New(Box<Notification>),
    /// A notification's article was retracted.
    Withdrawn {
        id: String,
    },
    /// The listener was too slow, or the hub did not hear of everything: read the feed again.
    Missed,
}

/// The listeners of one user.
#[derive(Debug)]
struct Audience {
    events: broadcast::Sender<HubEvent>,
    told: Told,
}

type Audiences = HashMap<String, Audience>;
type Listeners = Arc<Mutex<Audiences>>;

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
        subscribed(&self.listeners, &mut lock(&self.listeners), user)
    }

    /// As [`NotificationHub::listen`], unless so many of the user listen already.
    pub fn listen_within(&self, user: &str, n_max: usize) -> Option<Listener> {
        let mut listeners = lock(&self.listeners);
        let n_others = listeners
            .get(user)
            .map_or(0, |audience| audience.events.receiver_count());
        (n_others < n_max).then(|| subscribed(&self.listeners, &mut listeners, user))
    }

    pub fn n_listeners(&self) -> usize {
        lock(&self.listeners)
            .values()
            .map(|audience| audience.events.receiver_count())
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
            .is_some_and(|audience| audience.events.receiver_count() <= 1)
        {
            listeners.remove(&self.user);
        }
    }
}

fn lock(listeners: &Listeners) -> std::sync::MutexGuard<'_, Audiences> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new listener of a user among these.
fn subscribed(listeners: &Listeners, audiences: &mut Audiences, user: &str) -> Listener {
    let audience = audiences.entry(user.to_owned()).or_insert_with(|| Audience {
        events: broadcast::Sender::new(BACKLOG),
        told: Told::default(),
    });
    Listener {
        user: user.to_owned(),
        events: audience.events.subscribe(),
        listeners: Arc::clone(listeners),
    }
}

async fn start_source(
    database: &ContentPublishDatabase,
    account: usize,
    listeners: Listeners,
    poll: Poll,
) -> Result<Running, Cause> {
    let connected = database.accounts()[account].connected().await?;
    let heard = Arc::clone(&listeners);
    let delegate = move |batch: RawBatch, _: BatchContext| {
        batch
            .iter()
            .filter_map(|change| change.current.as_ref())
            .for_each(|item| tell(&heard, item));
        std::future::ready(Ok::<(), Cause>(()))
    };
    let processor = Processor::builder("notification-hub")
        .monitored(&connected.client, connected.content.clone())
        .leases(MemoryLeases::new())
        .instance(InstanceName::new("hub")?)
        .start_from(StartFrom::Now)
        .poll(poll)
        .lease_timing(UNCONTESTED)
        .look_when_alone(UNCONTESTED.renew)
        .build_raw(delegate)?;
    let running = processor.start().await?;
    // From here on everything of this account is heard; whoever listened before may have missed some of it.
    tell_all(&listeners, &HubEvent::Missed);
    Ok(running)
}

fn tell_all(listeners: &Listeners, event: &HubEvent) {
    for audience in lock(listeners).values() {
        // Whoever left meanwhile needs no event.
        let _ = audience.events.send(event.clone());
    }
}

fn tell(listeners: &Listeners, item: &Value) {
    if item.get("Type").and_then(Value::as_str) != Some(Notification::TYPE) {
        return;
    }
    let Some(user) = item.get("UserId").and_then(Value::as_str) else {
        return;
    };
    let mut listeners = lock(listeners);
    let Some(audience) = listeners.get_mut(user) else {
        return;
    };
    let Ok(notification) = serde_json::from_value::<Notification>(item.clone()) else {
        return;
    };
    let said = match (notification.withdrawn_at, notification.read_at) {
        (Some(_), _) => Said::Withdrawn,
        (None, Some(_)) => Said::Read,
        (None, None) => Said::New,
    };
    if !audience.told.is_news(&notification.id, said) {
        return;
    }
    let event = match said {
        Said::Withdrawn => HubEvent::Withdrawn { id: notification.id },
        _ => HubEvent::New(Box::new(notification)),
    };
    // Whoever left meanwhile needs no event.
    let _ = audience.events.send(event);
}

/// How often a hub asks servers that do not hold an answer back.
pub fn hub_poll() -> Poll {
    Poll::every(Duration::from_secs(1)).with_long_poll(LONG_POLL)
}
