//! What one writer was told, and what it never heard back about.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

use crate::client::{Answer, Client};

/// Longest time a writer is refused before that is a failure, and how long it waits between two tries.
const REFUSED_MAX: Duration = Duration::from_secs(60);
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// A small generator: one seed gives one run's choices, though not its timing.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// One writer writes items of one partition key; nobody else does.
pub struct Ledger {
    pub container: String,
    key: String,
    dice: Dice,
    /// Rises with every request, so that every version differs.
    n: u64,
    acknowledged: BTreeMap<String, u64>,
    /// The request that was under way when the server died.
    unknown: Option<Vec<Write>>,
    /// Whether the writer tries again when it is told that nobody can do it now. Others must not be told so.
    pub bears_refusals: bool,
}

/// What a writer was told of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Done,
    /// Nothing was done: another region takes writes.
    Elsewhere,
    /// Nothing was done: nobody can do it now.
    Refused,
    Nothing,
}

/// A version of an item, or `None` when it is deleted.
#[derive(Clone, Debug)]
struct Write {
    id: String,
    n: Option<u64>,
}

impl Ledger {
    pub fn new(writer: usize) -> Ledger {
        Ledger {
            container: "c".to_owned(),
            key: format!("key-{writer}"),
            dice: Dice(0x9E37_79B9 + writer as u64),
            n: 0,
            acknowledged: BTreeMap::new(),
            unknown: None,
            bears_refusals: false,
        }
    }

    /// Sends one request and notes what came of it. `false` when the server is gone.
    pub fn write_once(&mut self, client: &mut Client) -> bool {
        let mut refused = None;
        loop {
            match self.try_once(client) {
                Told::Done => return true,
                Told::Nothing => return false,
                Told::Elsewhere => panic!("{}: another region takes writes", self.key),
                Told::Refused => {
                    let first = *refused.get_or_insert_with(Instant::now);
                    assert!(first.elapsed() < REFUSED_MAX, "{}: refused for too long", self.key);
                }
            }
            std::thread::sleep(REFUSED_PAUSE);
        }
    }

    /// The same where writes may have moved to another region.
    pub fn try_once(&mut self, client: &mut Client) -> Told {
        self.n += 1;
        client.container.clone_from(&self.container);
        let (writes, answer, expected) = match self.dice.roll(10) {
            0..4 => self.create(client),
            4..6 => self.batch(client),
            6..9 => self.replace(client),
            _ => self.delete(client),
        };
        match answer {
            Ok(answer) if answer.status == expected => {
                apply(&mut self.acknowledged, &writes);
                Told::Done
            }
            // The outcome is not known, and the server says so.
            Ok(answer) if answer.status == 408 => {
                self.unknown = Some(writes);
                Told::Nothing
            }
            Ok(answer) if answer.status == 403 => Told::Elsewhere,
            Ok(answer) if answer.status == 503 && self.bears_refusals => Told::Refused,
            Ok(answer) => panic!("{writes:?}: {answer:?}"),
            Err(_) => {
                self.unknown = Some(writes);
                Told::Nothing
            }
        }
    }

    fn create(&mut self, client: &mut Client) -> (Vec<Write>, io::Result<Answer>, u16) {
        let write = Write {
            id: format!("i{}", self.n),
            n: Some(self.n),
        };
        let answer = client.create(&self.key, &self.body(&write.id));
        (vec![write], answer, 201)
    }

    /// Three new items and a new version of an old one.
    fn batch(&mut self, client: &mut Client) -> (Vec<Write>, io::Result<Answer>, u16) {
        let mut writes: Vec<Write> = (0..3)
            .map(|part| Write {
                id: format!("b{}-{part}", self.n),
                n: Some(self.n),
            })
            .collect();
        let create = |write: &Write| {
            format!(
                r#"{{"operationType":"Create","resourceBody":{}}}"#,
                self.body(&write.id)
            )
        };
        let mut operations: Vec<String> = writes.iter().map(create).collect();
        if let Some(id) = self.any_item() {
            operations.insert(
                1,
                format!(
                    r#"{{"operationType":"Replace","id":"{id}","resourceBody":{}}}"#,
                    self.body(&id)
                ),
            );
            writes.push(Write { id, n: Some(self.n) });
        }
        let answer = client.batch(&self.key, &format!("[{}]", operations.join(",")));
        (writes, answer, 200)
    }

    fn replace(&mut self, client: &mut Client) -> (Vec<Write>, io::Result<Answer>, u16) {
        let Some(id) = self.any_item() else {
            return self.create(client);
        };
        let answer = client.replace(&self.key, &id, &self.body(&id));
        (vec![Write { id, n: Some(self.n) }], answer, 200)
    }

    fn delete(&mut self, client: &mut Client) -> (Vec<Write>, io::Result<Answer>, u16) {
        let Some(id) = self.any_item() else {
            return self.create(client);
        };
        let answer = client.delete(&self.key, &id);
        (vec![Write { id, n: None }], answer, 204)
    }

    fn body(&self, id: &str) -> String {
        let padding = "x".repeat((self.n % 500) as usize);
        format!(
            r#"{{"id":"{id}","pk":"{}","n":{},"padding":"{padding}"}}"#,
            self.key, self.n
        )
    }

    /// An item that is known to be there.
    fn any_item(&mut self) -> Option<String> {
        let n_items = self.acknowledged.len() as u64;
        if n_items == 0 {
            return None;
        }
        let index = self.dice.roll(n_items) as usize;
        self.acknowledged.keys().nth(index).cloned()
    }

    /// What the writer's key must hold: what was acknowledged, and all or nothing of what is unknown.
    fn settle(&mut self, found: BTreeMap<String, u64>) -> Result<(), String> {
        let mut with_unknown = self.acknowledged.clone();
        let unknown = self.unknown.take();
        apply(&mut with_unknown, unknown.as_deref().unwrap_or_default());
        if found != self.acknowledged && found != with_unknown {
            let differs = |id: &&String| found.get(*id) != self.acknowledged.get(*id);
            let ids: std::collections::BTreeSet<&String> = found.keys().chain(self.acknowledged.keys()).collect();
            let differences: Vec<String> = ids
                .into_iter()
                .filter(differs)
                .map(|id| {
                    format!(
                        "{id}: acknowledged {:?}, found {:?}",
                        self.acknowledged.get(id),
                        found.get(id)
                    )
                })
                .collect();
            return Err(format!(
                "{}: {}; unknown: {unknown:?}",
                self.key,
                differences.join(", ")
            ));
        }
        self.acknowledged = found;
        Ok(())
    }
}

fn apply(items: &mut BTreeMap<String, u64>, writes: &[Write]) {
    for Write { id, n } in writes {
        match n {
            Some(n) => drop(items.insert(id.clone(), *n)),
            None => drop(items.remove(id)),
        }
    }
}

/// Compares what every writer knows with what the server holds, and goes on from there.
pub fn settle(ledgers: &mut [Ledger], found: &HashMap<(String, String), u64>) -> Result<(), String> {
    let mut by_key: HashMap<&str, BTreeMap<String, u64>> = HashMap::new();
    for ((key, id), n) in found {
        by_key.entry(key).or_default().insert(id.clone(), *n);
    }
    for ledger in ledgers.iter_mut() {
        let held = by_key.remove(ledger.key.as_str()).unwrap_or_default();
        ledger.settle(held)?;
    }
    if by_key.is_empty() {
        Ok(())
    } else {
        Err(format!("items nobody wrote: {by_key:?}"))
    }
}
