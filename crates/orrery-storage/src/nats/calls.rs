//! Requests from one node to another, and their answers: bytes, carried by NATS and kept by nobody.
//!
//! A request is one message. An answer is as many as its size takes, under a subject of its own, numbered, the last one marked:
//!
//! | Bytes | Content |
//! |---|---|
//! | 1 | 1 if this is the last part, else 0 |
//! | 4 | number of the part, from 0 |
//! | … | the part |
//!
//! Nobody keeps a message, so a request or its answer may be lost with a connection. Whoever waits longer than a moment asks, under
//! the same subject with [`ABOUT`], whether the request is under way; if it is not, the wait is over.
//!
//! Invariant: nobody answers a request twice, and a part that is lost or out of order loses the answer, never bytes of it.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{Client, RequestErrorKind, StatusCode, Subject, Subscriber};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use orrery_partition::storage::Result;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::bus::cannot;

/// Largest answer that is taken.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Parts of one answer that may wait to be put together.
const PARTS_WAITING: usize = 64;
/// Room for what NATS adds to a message.
const HEADROOM_BYTES: usize = 64 << 10;
const PART_HEAD_BYTES: usize = 5;
/// Follows a subject in questions about requests that were sent to it. They carry where the answer is awaited.
const ABOUT: &str = "about";
const UNDER_WAY: &[u8] = &[1];
const UNKNOWN: &[u8] = &[0];
/// How long to wait before asking about a request, each time.
const LOOK_AFTER: Duration = Duration::from_secs(3);
/// How long such a question may take. Silence says nothing about the request.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an answer may take that was sent when the request was asked about.
const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// A name for the connection, for people who look at the servers.
const CONNECTION: &str = "orrery";
/// A server that does not answer a ping within two of these is gone.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nobody took the request.
    NobodyThere,
    /// The request is too large to be sent.
    TooLarge,
    /// The request may have been taken.
    Lost,
}

/// Connects to any of these servers.
pub async fn connect(urls: &[String]) -> Result<Client> {
    let options = async_nats::ConnectOptions::new()
        .name(CONNECTION)
        .ping_interval(PING_INTERVAL);
    let connected = options.connect(urls.to_vec()).await;
    connected.map_err(|error| cannot("reach a NATS server", &error))
}

type Part = (u32, bool, Bytes);

#[derive(Debug, Default)]
struct Pending(Mutex<HashMap<u64, mpsc::Sender<std::result::Result<Part, Silence>>>>);

impl Pending {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<std::result::Result<Part, Silence>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The asking side.
#[derive(Debug)]
pub struct Caller {
    client: Client,
    inbox: String,
    pending: Arc<Pending>,
    next: AtomicU64,
    request_bytes_max: usize,
    _receiving: AbortOnDropHandle<()>,
}

impl Caller {
    pub async fn new(client: Client) -> Result<Caller> {
        let inbox = client.new_inbox();
        let subscribed = client.subscribe(format!("{inbox}.*")).await;
        let answers = subscribed.map_err(|error| cannot("listen for answers", &error))?;
        let pending = Arc::new(Pending::default());
        let request_bytes_max = client.server_info().max_payload.saturating_sub(HEADROOM_BYTES);
        let receiving = tokio::spawn(receive(answers, inbox.clone(), Arc::clone(&pending)));
        Ok(Caller {
            client,
            inbox,
            pending,
            next: AtomicU64::new(0),
            request_bytes_max,
            _receiving: AbortOnDropHandle::new(receiving),
        })
    }

    /// Asks whoever listens to a subject. Dropping the future forgets the request, wherever it is.
    pub async fn ask(&self, subject: &str, request: Bytes, patience: Duration) -> std::result::Result<Bytes, Silence> {
        if request.len() > self.request_bytes_max {
            return Err(Silence::TooLarge);
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, parts) = mpsc::channel(PARTS_WAITING);
        self.pending.lock().insert(id, sender);
        let _forgotten = Forget { caller: self, id };
        let reply = format!("{}.{id}", self.inbox);
        let sent = self
            .client
            .publish_with_reply(subject.to_owned(), reply.clone(), request)
            .await;
        // Without a connection it waits in the client and may be sent yet.
        sent.map_err(|_| Silence::Lost)?;
        let until = Instant::now() + patience;
        let mut answered = pin!(assemble(parts));
        loop {
            let look = until.min(Instant::now() + LOOK_AFTER);
            if let Ok(answered) = tokio::time::timeout_at(look, &mut answered).await {
                return answered;
            }
            if look == until {
                return Err(Silence::Lost);
            }
            if self.is_lost(subject, &reply).await {
                let last = tokio::time::timeout(ON_ITS_WAY, &mut answered).await;
                return last.unwrap_or(Err(Silence::Lost));
            }
        }
    }

    /// Tells whoever listens to a subject, which may be nobody.
    pub async fn tell(&self, subject: &str, word: Bytes) {
        // Without a connection it waits in the client; whoever it is for is told again and again.
        let _ = self.client.publish(subject.to_owned(), word).await;
    }

    /// Whether whoever listens to a subject knows nothing of a request whose answer is awaited there.
    async fn is_lost(&self, subject: &str, reply: &str) -> bool {
        let about = format!("{subject}.{ABOUT}");
        let asked = self.client.request(about, Bytes::copy_from_slice(reply.as_bytes()));
        match tokio::time::timeout(LOOK_TIMEOUT, asked).await {
            Ok(Ok(said)) => said.payload == UNKNOWN,
            Ok(Err(error)) => error.kind() == RequestErrorKind::NoResponders,
            Err(_) => false,
        }
    }
}

struct Forget<'a> {
    caller: &'a Caller,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.caller.pending.lock().remove(&self.id);
    }
}

/// Hands what arrives to whoever waits for it.
async fn receive(mut answers: Subscriber, inbox: String, pending: Arc<Pending>) {
    while let Some(message) = answers.next().await {
        let id = message
            .subject
            .strip_prefix(&*inbox)
            .and_then(|rest| rest.strip_prefix('.'));
        let Some(id) = id.and_then(|id| id.parse::<u64>().ok()) else {
            continue;
        };
        let part = match message.status {
            Some(StatusCode::NO_RESPONDERS) => Err(Silence::NobodyThere),
            _ => split(&message.payload).ok_or(Silence::Lost),
        };
        let waiting = pending.lock().get(&id).cloned();
        // One who takes too little in has lost the answer: the gap will tell.
        if let Some(waiting) = waiting {
            let _ = waiting.try_send(part);
        }
    }
}

fn split(payload: &Bytes) -> Option<Part> {
    let (head, _) = payload.split_first_chunk::<PART_HEAD_BYTES>()?;
    let [last, number @ ..] = *head;
    (last <= 1).then(|| (u32::from_be_bytes(number), last == 1, payload.slice(PART_HEAD_BYTES..)))
}

async fn assemble(
    mut parts: mpsc::Receiver<std::result::Result<Part, Silence>>,
) -> std::result::Result<Bytes, Silence> {
    let mut whole = BytesMut::new();
    let mut expected = 0;
    loop {
        let (number, is_last, part) = parts.recv().await.ok_or(Silence::Lost)??;
        if number != expected || whole.len() + part.len() > ANSWER_BYTES_MAX {
            return Err(Silence::Lost);
        }
        if is_last && whole.is_empty() {
            return Ok(part);
        }
        whole.extend_from_slice(&part);
        if is_last {
            return Ok(whole.freeze());
        }
        expected += 1;
    }
}

/// Hears what is told to a subject. Nobody waits for an answer.
#[derive(Debug)]
pub struct Listener(Subscriber);

impl Listener {
    /// Listens until it is dropped.
    pub async fn listen(client: &Client, subject: &str) -> Result<Listener> {
        let subscribed = client.subscribe(subject.to_owned()).await;
        subscribed
            .map(Listener)
            .map_err(|error| cannot("listen for what others tell", &error))
    }

    /// The next word; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<Bytes> {
        Some(self.0.next().await?.payload)
    }
}

/// The answering side.
#[derive(Debug)]
pub struct Answerer {
    client: Client,
    requests: Subscriber,
    part_bytes_max: usize,
    under_way: Arc<UnderWay>,
    _telling: AbortOnDropHandle<()>,
}

/// Where answers are awaited to requests that were taken and not answered yet.
#[derive(Debug, Default)]
struct UnderWay(Mutex<HashSet<Bytes>>);

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, HashSet<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells those who ask whether their requests are under way.
async fn tell(client: Client, mut questions: Subscriber, under_way: Arc<UnderWay>) {
    while let Some(question) = questions.next().await {
        if let Some(reply) = &question.reply {
            let is_under_way = under_way.lock().contains(&question.payload);
            let said = if is_under_way { UNDER_WAY } else { UNKNOWN };
            // Whoever asked asks again.
            let _ = client.publish(reply.clone(), Bytes::from_static(said)).await;
        }
    }
}

impl Answerer {
    /// Listens to a subject until it is dropped.
    pub async fn listen(client: Client, subject: &str) -> Result<Answerer> {
        let subscribed = client.subscribe(subject.to_owned()).await;
        let requests = subscribed.map_err(|error| cannot("listen for requests", &error))?;
        let asked = client.subscribe(format!("{subject}.{ABOUT}")).await;
        let asked = asked.map_err(|error| cannot("listen for questions about requests", &error))?;
        let part_bytes_max = client.server_info().max_payload.saturating_sub(HEADROOM_BYTES).max(1);
        let under_way = Arc::new(UnderWay::default());
        let telling = tokio::spawn(tell(client.clone(), asked, Arc::clone(&under_way)));
        Ok(Answerer {
            client,
            requests,
            part_bytes_max,
            under_way,
            _telling: AbortOnDropHandle::new(telling),
        })
    }

    /// Takes no new requests: whoever asks from now on is told that nobody is there. Those that are on their way still come.
    pub async fn drain(&mut self) {
        // Without a connection there is nothing on its way.
        let _ = self.requests.drain().await;
    }

    /// Waits until every answer has left.
    pub async fn flush(&self) {
        // Who does not get one asks elsewhere.
        let _ = self.client.flush().await;
    }

    /// The next request; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<Call> {
        loop {
            let message = self.requests.next().await?;
            // Without it nobody waits for an answer.
            if let Some(reply) = message.reply {
                self.under_way.lock().insert(Bytes::copy_from_slice(reply.as_bytes()));
                return Some(Call {
                    request: message.payload,
                    reply,
                    client: self.client.clone(),
                    part_bytes_max: self.part_bytes_max,
                    under_way: Arc::clone(&self.under_way),
                });
            }
        }
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Call {
    pub request: Bytes,
    reply: Subject,
    client: Client,
    part_bytes_max: usize,
    under_way: Arc<UnderWay>,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.under_way.lock().remove(self.reply.as_bytes());
    }
}

impl Call {
    pub async fn answer(self, answer: Bytes) {
        for part in parts(&answer, self.part_bytes_max) {
            // Whoever asked notices that the answer stays away.
            if self.client.publish(self.reply.clone(), part).await.is_err() {
                return;
            }
        }
    }
}

/// An answer cut into messages; at least one.
fn parts(answer: &Bytes, bytes_max: usize) -> impl Iterator<Item = Bytes> {
    let n_parts = answer.len().div_ceil(bytes_max).max(1);
    (0..n_parts).map(move |number| {
        let from = number * bytes_max;
        let part = &answer[from..answer.len().min(from + bytes_max)];
        let mut message = BytesMut::with_capacity(PART_HEAD_BYTES + part.len());
        message.put_u8(u8::from(number + 1 == n_parts));
        message.put_u32(number as u32);
        message.extend_from_slice(part);
        message.freeze()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn reassembled(messages: Vec<Bytes>) -> std::result::Result<Bytes, Silence> {
        let (sender, parts) = mpsc::channel(messages.len().max(1));
        for message in &messages {
            sender.try_send(split(message).ok_or(Silence::Lost)).unwrap();
        }
        drop(sender);
        assemble(parts).await
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    proptest! {
        #[test]
        fn an_answer_arrives_as_it_was_whatever_a_message_may_carry(
            answer in proptest::collection::vec(any::<u8>(), 0..2000),
            bytes_max in 1usize..700,
        ) {
            let answer = Bytes::from(answer);
            let messages: Vec<Bytes> = parts(&answer, bytes_max).collect();
            prop_assert!(messages.iter().all(|message| message.len() <= bytes_max + PART_HEAD_BYTES));
            prop_assert_eq!(wait(reassembled(messages)), Ok(answer));
        }

        #[test]
        fn an_answer_with_a_part_missing_is_lost(answer in proptest::collection::vec(any::<u8>(), 2..500), lost in any::<prop::sample::Index>()) {
            let mut messages: Vec<Bytes> = parts(&Bytes::from(answer), 1).collect();
            messages.remove(lost.index(messages.len()));
            prop_assert_eq!(wait(reassembled(messages)), Err(Silence::Lost));
        }
    }
}
