//! Clients of a cluster that record what they asked and what they were told, in the form that the checks of the simulation judge.
//!
//! A request that was not answered, or answered 408, may have happened. Nodes are what regions are in the simulation: places
//! where the same data is asked for.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_model::{Lsn, PartitionId, SessionToken};
use orrery_node::api::Consistency;
use orrery_sim::dice::Dice;
use orrery_sim::regions::history::{Action, Answer, Call, History, Item, Loss, PageRead, PairRead, Tick};

use crate::client::{self, Client};
use crate::load::eventually;

pub const ITEMS: [Item; 7] = [
    ("k", "a"),
    ("k", "b"),
    ("l", "a"),
    ("m", "a"),
    ("n", "a"),
    ("o", "a"),
    ("o", "b"),
];
/// Something that the catalogue holds.
const FUNCTION: Item = ("catalogue", "f");
/// Written and read together only.
const PAIR: (&str, [&str; 2]) = ("pair", ["x", "y"]);
/// Longer than a node holds a request back.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two requests of a client, at most.
const PAUSE_MS: u64 = 20;
const N_CLIENTS: usize = 6;
/// These stay with one node each for as long as it is there, also while it stands still.
const N_LOYAL: usize = 2;

/// A node as clients know it.
#[derive(Clone, Copy, Debug)]
struct Door {
    name: &'static str,
    port: u16,
    /// Only who is loyal asks there.
    is_shunned: bool,
}

/// What all clients share.
pub struct Recorder {
    level: Consistency,
    container: String,
    doors: Mutex<Vec<Door>>,
    history: Mutex<History>,
    started: Instant,
    tick: AtomicU64,
    value: AtomicU64,
    stop: AtomicBool,
    /// While it is quiet no client asks anything.
    is_quiet: AtomicBool,
    n_busy: AtomicUsize,
    /// Acknowledged writes and answered reads, by client.
    n_done: [AtomicUsize; N_CLIENTS],
}

impl Recorder {
    pub fn new(level: Consistency, container: &str) -> Recorder {
        Recorder {
            level,
            container: container.to_owned(),
            doors: Mutex::default(),
            history: Mutex::default(),
            started: Instant::now(),
            tick: AtomicU64::new(0),
            value: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
            n_busy: AtomicUsize::new(0),
            n_done: Default::default(),
        }
    }

    /// Clients may use a node from now on.
    pub fn add(&self, name: &'static str, port: u16) {
        self.doors().push(Door {
            name,
            port,
            is_shunned: false,
        });
    }

    /// A node is gone.
    pub fn remove(&self, name: &str) {
        self.doors().retain(|door| door.name != name);
    }

    /// Only who is loyal still asks a node, or everybody again.
    pub fn shun(&self, name: &str, is_shunned: bool) {
        let mut doors = self.doors();
        doors
            .iter_mut()
            .filter(|door| door.name == name)
            .for_each(|door| door.is_shunned = is_shunned);
    }

    fn doors(&self) -> MutexGuard<'_, Vec<Door>> {
        self.doors.lock().unwrap()
    }

    /// Runs clients while something happens to the cluster; then looks at what every node holds, and answers what was recorded.
    pub fn record(self, happen: impl FnOnce(&Recorder)) -> History {
        std::thread::scope(|scope| {
            for number in 0..N_CLIENTS {
                let recorder = &self;
                scope.spawn(move || RecordingClient::new(recorder, number).run());
            }
            // Also when something fails: the clients must end.
            let _stopping = Stopping(&self.stop);
            happen(&self);
        });
        self.end();
        self.into_history()
    }

    pub fn into_history(self) -> History {
        self.history.into_inner().unwrap()
    }

    /// Waits until most clients were answered so many times from now on: one may wait for a node that stands still.
    pub fn go_on(&self, n_answers: usize) {
        let counts = || self.n_done.each_ref().map(|n_done| n_done.load(Ordering::Acquire));
        let before = counts();
        let has_gone_on = || {
            let went_on = counts()
                .iter()
                .zip(before)
                .filter(|(now, before)| **now >= before + n_answers)
                .count();
            went_on >= N_CLIENTS - N_LOYAL
        };
        assert!(eventually(has_gone_on), "clients go on: {before:?}, {:?}", counts());
    }

    /// Lets something happen while no client has a request under way.
    pub fn quietly(&self, happen: impl FnOnce()) {
        self.is_quiet.store(true, Ordering::SeqCst);
        let is_quiet = || self.n_busy.load(Ordering::SeqCst) == 0;
        assert!(eventually(is_quiet), "every request ends");
        happen();
        self.is_quiet.store(false, Ordering::SeqCst);
    }

    /// What every node holds, once all hold the same or that takes too long.
    pub fn end(&self) {
        let finals = self.become_equal();
        self.history.lock().unwrap().finals.extend(finals);
    }

    /// The same while it goes on, if nobody writes.
    pub fn become_equal(&self) -> Vec<(&'static str, Vec<(Item, u64)>)> {
        let doors = self.doors().clone();
        let mut held = Vec::new();
        eventually(|| {
            held = doors.iter().map(|door| (door.name, self.held(door))).collect();
            let is_same = |(_, items): &(_, Option<Vec<_>>)| items.is_some() && *items == held[0].1;
            held.iter().all(is_same)
        });
        held.into_iter()
            .map(|(name, items)| (name, items.unwrap_or_default()))
            .collect()
    }

    /// A node's region has taken over from another by force: notes what it lacks as lost, and answers how many acknowledged writes that
    /// are. All regions were equal at `since`, so nothing may be lost that was asked for before.
    pub fn note_loss(&self, name: &str, since: Tick) -> usize {
        let door = *self.doors().iter().find(|door| door.name == name).unwrap();
        let at = self.tick();
        let mut n_lost = 0;
        for item in ITEMS {
            let (after, head) = self.kept(&door, item);
            let loss = Loss {
                at,
                item,
                after,
                head,
                is_exact: true,
            };
            let mut history = self.history.lock().unwrap();
            for (call, value, _) in history.writes(item) {
                let Answer::Written { lsn, .. } = call.answer else {
                    continue;
                };
                if after < lsn && lsn <= head {
                    assert!(
                        call.invoked > since,
                        "{value} of {item:?} was in every region and is lost"
                    );
                    n_lost += 1;
                }
            }
            history.losses.push(loss);
        }
        n_lost
    }

    /// The LSN of the version that a region which has taken over has of an item, and the last one that others may have given out before.
    fn kept(&self, door: &Door, item: Item) -> (Lsn, Lsn) {
        let mut kept = None;
        let is_read = || {
            let answer = self
                .connect(door.port)
                .and_then(|mut client| client.read(item.0, item.1));
            let Ok(answer) = answer else { return false };
            let lsn = match answer.status {
                200 => item_lsn(&answer),
                404 if sub_status(&answer) == 0 => Lsn::ZERO,
                _ => return false,
            };
            let (_, (_, stands)) = standing(&answer).expect("a read says where the partition stands");
            kept = Some((lsn, Lsn(((stands.0 >> 32) << 32) - 1)));
            true
        };
        assert!(eventually(is_read), "{item:?} is read in {}", door.name);
        kept.unwrap()
    }

    /// The items that a node shows; `None` when it refuses to.
    fn held(&self, door: &Door) -> Option<Vec<(Item, u64)>> {
        let mut client = self.connect(door.port).ok()?;
        let mut held = Vec::new();
        for item in ITEMS {
            let answer = client.read(item.0, item.1).ok()?;
            match answer.status {
                200 => held.push((item, answer.json()["n"].as_u64()?)),
                404 if sub_status(&answer) == 0 => {}
                _ => return None,
            }
        }
        Some(held)
    }

    fn connect(&self, port: u16) -> io::Result<Client> {
        let mut client = Client::reach(port, PATIENCE)?;
        client.container.clone_from(&self.container);
        Ok(client)
    }

    pub fn tick(&self) -> Tick {
        self.tick.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn next_value(&self) -> u64 {
        self.value.fetch_add(1, Ordering::AcqRel) + 1
    }
}

struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// One application with a session of its own, one request at a time.
pub struct RecordingClient<'a> {
    recorder: &'a Recorder,
    number: usize,
    dice: Dice,
    session: SessionToken,
    /// The version last seen of each item: its value and etag.
    versions: Vec<(Item, u64, String)>,
    connection: Option<(Door, Client)>,
}

/// A request that is under way.
struct Begun {
    door: &'static str,
    item: Item,
    action: Action,
    invoked: Tick,
    asked_ms: u64,
}

impl<'a> RecordingClient<'a> {
    pub fn new(recorder: &'a Recorder, number: usize) -> RecordingClient<'a> {
        RecordingClient {
            recorder,
            number,
            dice: Dice::new(number as u64),
            session: SessionToken::default(),
            versions: Vec::new(),
            connection: None,
        }
    }

    fn run(mut self) {
        while !self.recorder.stop.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(self.dice.roll(PAUSE_MS)));
            // In this order: whoever wants it quiet waits for those who have not seen that.
            self.recorder.n_busy.fetch_add(1, Ordering::SeqCst);
            if !self.recorder.is_quiet.load(Ordering::SeqCst) && self.choose_door() {
                self.ask();
            }
            self.recorder.n_busy.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn ask(&mut self) {
        let item = self.dice.pick(&ITEMS);
        let is_strong = self.recorder.level == Consistency::Strong;
        match self.dice.roll(14) {
            0..5 => self.read(item),
            5..8 => self.write(item),
            8 => self.write_over(item),
            9 | 10 => self.write_pair(),
            11 => self.read_pair(),
            12 if is_strong => self.use_catalogue(),
            _ => self.read_page(item.0),
        }
    }

    /// Goes to another node, or stays. `false` while there is none.
    fn choose_door(&mut self) -> bool {
        let doors = self.recorder.doors().clone();
        let is_there = |connection: &(Door, Client)| doors.iter().any(|door| door.port == connection.0.port);
        if self.number < N_LOYAL && self.connection.as_ref().is_some_and(is_there) {
            return true;
        }
        let open: Vec<Door> = doors.into_iter().filter(|door| !door.is_shunned).collect();
        if open.is_empty() {
            return false;
        }
        let door = match self.number < N_LOYAL {
            true => open[self.number % open.len()],
            false => self.dice.pick(&open),
        };
        self.go_to(door)
    }

    /// Uses the node of this name from now on.
    pub fn use_node(&mut self, name: &str) {
        let found = self.recorder.doors().iter().find(|door| door.name == name).copied();
        assert!(self.go_to(found.unwrap()), "{name} takes connections");
    }

    fn go_to(&mut self, door: Door) -> bool {
        if self
            .connection
            .as_ref()
            .is_some_and(|(known, _)| known.port == door.port)
        {
            return true;
        }
        self.connection = self.recorder.connect(door.port).ok().map(|client| (door, client));
        self.connection.is_some()
    }

    /// Sends a request; `None` when it was not answered, and may have happened.
    fn send(&mut self, request: impl FnOnce(&mut Client) -> io::Result<client::Answer>) -> Option<client::Answer> {
        let (_, client) = self.connection.as_mut()?;
        let answered = request(client);
        if answered.is_err() {
            // What comes later on this connection would be the answer to this.
            self.connection = None;
        }
        answered.ok()
    }

    fn begin(&self, item: Item, action: Action) -> Begun {
        let door = self.connection.as_ref().map_or("", |(door, _)| door.name);
        Begun {
            door,
            item,
            action,
            asked_ms: self.recorder.now_ms(),
            invoked: self.recorder.tick(),
        }
    }

    fn call(&self, begun: Begun, token: Option<(i64, Lsn)>, answer: Answer) -> Call {
        if matches!(answer, Answer::Read { .. } | Answer::Written { .. }) {
            self.note_answer();
        }
        Call {
            client: self.number,
            region: begun.door,
            item: begun.item,
            action: begun.action,
            invoked: begun.invoked,
            completed: self.recorder.tick(),
            asked_ms: begun.asked_ms,
            answered_ms: self.recorder.now_ms(),
            token,
            answer,
        }
    }

    fn note_answer(&self) {
        if let Some(n_done) = self.recorder.n_done.get(self.number) {
            n_done.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn record(&self, call: Call) {
        self.recorder.history.lock().unwrap().calls.push(call);
    }

    /// What a read asks for: with the session, or less than the account promises, which is all that may be weaker.
    fn read_headers(&mut self) -> String {
        match self.recorder.level {
            Consistency::Session if !self.session.is_empty() => format!("x-ms-session-token: {}\r\n", self.session),
            Consistency::ConsistentPrefix if self.dice.percent(50) => "x-ms-consistency-level: Eventual\r\n".to_owned(),
            _ => String::new(),
        }
    }

    pub fn read(&mut self, item: Item) {
        let headers = self.read_headers();
        let sent = self.session.clone();
        let begun = self.begin(item, Action::Read);
        let answered = self.send(|client| client.read_with(item.0, item.1, &headers));
        let stood = answered.as_ref().and_then(standing);
        let token = match self.recorder.level {
            Consistency::Session => stood.and_then(|(partition, _)| sent.get(partition)),
            _ => None,
        };
        let answer = self.read_answer(item, answered);
        let call = self.call(begun, token.map(|seen| (seen.version, seen.lsn)), answer);
        self.record(call);
    }

    fn read_answer(&mut self, item: Item, answered: Option<client::Answer>) -> Answer {
        let Some(answered) = answered else {
            return Answer::Unknown;
        };
        let is_absent = answered.status == 404 && sub_status(&answered) == 0;
        let Some((_, at)) = standing(&answered).filter(|_| answered.status == 200 || is_absent) else {
            return refusal(&answered);
        };
        self.learn(&answered);
        let found = (!is_absent).then(|| {
            let value = answered.json()["n"].as_u64().expect("every item has a value");
            self.remember(item, value, &answered);
            (value, item_lsn(&answered))
        });
        Answer::Read { found, at }
    }

    pub fn write(&mut self, item: Item) {
        let (value, body) = self.next(item);
        let begun = self.begin(item, Action::Write { value, expected: None });
        let answered = self.send(|client| client.upsert(item.0, &body));
        self.written(begun, value, answered);
    }

    /// Writes only over the version that was last seen.
    fn write_over(&mut self, item: Item) {
        let Some((_, seen, etag)) = self.versions.iter().find(|(known, ..)| *known == item).cloned() else {
            return self.write(item);
        };
        let (value, body) = self.next(item);
        let expected = Some(seen);
        let begun = self.begin(item, Action::Write { value, expected });
        let answered = self.send(|client| client.replace_over(item.0, item.1, &etag, &body));
        self.written(begun, value, answered);
    }

    fn next(&self, item: Item) -> (u64, String) {
        let value = self.recorder.next_value();
        (value, body(item, value))
    }

    fn written(&mut self, begun: Begun, value: u64, answered: Option<client::Answer>) {
        let answer = match answered {
            None => Answer::Unknown,
            Some(answered) if matches!(answered.status, 200 | 201) => {
                self.learn(&answered);
                self.remember(begun.item, value, &answered);
                let (_, (version, _)) = standing(&answered).expect("a write says where the partition stands");
                Answer::Written {
                    lsn: item_lsn(&answered),
                    version,
                }
            }
            Some(answered) => refusal(&answered),
        };
        let call = self.call(begun, None, answer);
        self.record(call);
    }

    fn learn(&mut self, answered: &client::Answer) {
        if let Some(token) = token(answered) {
            self.session.merge(&token);
        }
    }

    fn remember(&mut self, item: Item, value: u64, answered: &client::Answer) {
        self.versions.retain(|(known, ..)| *known != item);
        let etag = answered.headers["etag"].clone();
        self.versions.push((item, value, etag));
    }

    fn write_pair(&mut self) {
        let value = self.recorder.next_value();
        let step = |id: &str| {
            format!(
                r#"{{"operationType":"Upsert","resourceBody":{}}}"#,
                body((PAIR.0, id), value)
            )
        };
        let steps = format!("[{}]", PAIR.1.map(step).join(","));
        if let Some(answered) = self.send(|client| client.batch(PAIR.0, &steps)) {
            self.learn(&answered);
        }
    }

    fn read_pair(&mut self) {
        let Some((door, shown)) = self.shown(PAIR.0) else {
            return;
        };
        let of = |id: &str| shown.iter().find(|(name, _)| name == id).map(|(_, value)| *value);
        let pair = PairRead {
            at: self.recorder.tick(),
            region: door,
            values: (of(PAIR.1[0]), of(PAIR.1[1])),
        };
        self.recorder.history.lock().unwrap().pairs.push(pair);
    }

    fn read_page(&mut self, key: &'static str) {
        let Some((door, shown)) = self.shown(key) else {
            return;
        };
        let of = |item: Item| {
            let found = shown.iter().find(|(id, _)| item == (key, id.as_str()));
            found.map(|(_, value)| (item, *value))
        };
        let page = PageRead {
            at: self.recorder.tick(),
            region: door,
            key,
            values: ITEMS.into_iter().filter_map(of).collect(),
        };
        self.recorder.history.lock().unwrap().pages.push(page);
    }

    /// Every item of a partition key, by id, and the node that showed them.
    fn shown(&mut self, key: &str) -> Option<(&'static str, Vec<(String, u64)>)> {
        let headers = self.read_headers();
        let door = self.connection.as_ref()?.0.name;
        let answered = self.send(|client| client.read_key(key, &headers))?;
        if answered.status != 200 {
            return None;
        }
        self.note_answer();
        let shown = answered.json();
        let entry = |entry: &serde_json::Value| Some((entry["id"].as_str()?.to_owned(), entry["n"].as_u64()?));
        let shown = shown["Documents"].as_array().expect("documents").iter();
        Some((door, shown.map(|shown| entry(shown).expect("an item")).collect()))
    }

    /// Writes or reads something that the catalogue holds.
    fn use_catalogue(&mut self) {
        let call = match self.dice.percent(40) {
            true => {
                let value = self.recorder.next_value();
                let text = format!(r#"{{"id":"{}","body":"{value}"}}"#, FUNCTION.1);
                let begun = self.begin(FUNCTION, Action::Write { value, expected: None });
                let answer = match self.send(|client| client.upsert_function(&text)) {
                    None => Answer::Unknown,
                    Some(answered) if matches!(answered.status, 200 | 201) => Answer::Written {
                        lsn: Lsn::ZERO,
                        version: 0,
                    },
                    Some(answered) => refusal(&answered),
                };
                self.call(begun, None, answer)
            }
            false => {
                let begun = self.begin(FUNCTION, Action::Read);
                let read = |found: Option<u64>| Answer::Read {
                    found: found.map(|value| (value, Lsn::ZERO)),
                    at: (0, Lsn::ZERO),
                };
                let answer = match self.send(|client| client.read_function(FUNCTION.1)) {
                    None => Answer::Unknown,
                    Some(answered) if answered.status == 200 => {
                        let text = answered.json()["body"].as_str().and_then(|text| text.parse().ok());
                        read(Some(text.expect("the function is a number")))
                    }
                    Some(answered) if answered.status == 404 => read(None),
                    Some(answered) => refusal(&answered),
                };
                self.call(begun, None, answer)
            }
        };
        self.recorder.history.lock().unwrap().catalogue.push(call);
    }
}

pub fn body(item: (&str, &str), value: u64) -> String {
    format!(r#"{{"id":"{}","pk":"{}","n":{value}}}"#, item.1, item.0)
}

fn token(answered: &client::Answer) -> Option<SessionToken> {
    SessionToken::parse(answered.headers.get("x-ms-session-token")?)
}

/// The partition that answered, and where it stood.
fn standing(answered: &client::Answer) -> Option<(PartitionId, (i64, Lsn))> {
    let text = answered.headers.get("x-ms-session-token")?;
    let partition = PartitionId(text.split(':').next()?.parse().ok()?);
    let stood = token(answered)?.get(partition)?;
    Some((partition, (stood.version, stood.lsn)))
}

fn item_lsn(answered: &client::Answer) -> Lsn {
    let lsn = answered.headers.get("x-ms-item-lsn").and_then(|lsn| lsn.parse().ok());
    Lsn(lsn.expect("an item has an LSN"))
}

fn sub_status(answered: &client::Answer) -> u32 {
    let sub = answered.headers.get("x-ms-substatus").and_then(|sub| sub.parse().ok());
    sub.unwrap_or(0)
}

/// Only some failures say that nothing happened.
fn refusal(answered: &client::Answer) -> Answer {
    match answered.status {
        408 | 449 => Answer::Unknown,
        status => Answer::Refused(status, sub_status(answered)),
    }
}
