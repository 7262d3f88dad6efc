//! Clients of the simulated regions: each with a session of its own, one request at a time, everything recorded.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::etag::Precondition;
use orrery_model::{IndexingDirective, Lsn, SessionToken};
use orrery_node::api::{
    BatchOperation, BatchStep, Consistency, FeedTarget, ItemSelector, ItemVerb, Operation, Options, Outcome, Page,
};
use orrery_node::{Failure, Reply};
use tokio::time::{sleep, timeout};

use super::history::{Action, Answer, Call, Item, PairRead, Tick};
use super::{ITEMS, PATIENCE, World};
use crate::dice::Dice;
use crate::requests::{
    body, container, item_operation, partition_key, read_script, request, script_operation, text, value_of,
    write_script,
};

const N_CALLS: usize = 30;
/// Something that the catalogue holds.
const SCRIPT: Item = ("catalogue", "f");
/// Written and read together only.
const PAIR: [&str; 2] = ["x", "y"];

/// One application with a session of its own.
pub struct Client {
    world: Arc<World>,
    dice: Dice,
    number: usize,
    session: SessionToken,
    /// The version last seen of each item: its value and etag.
    versions: Vec<(Item, u64, String)>,
}

impl Client {
    pub fn new(world: &Arc<World>, number: usize, dice: Dice) -> Client {
        Client {
            world: Arc::clone(world),
            dice,
            number,
            session: SessionToken::default(),
            versions: Vec::new(),
        }
    }

    pub async fn run(mut self) {
        for _ in 0..N_CALLS {
            sleep(Duration::from_millis(self.dice.roll(400))).await;
            if self.world.alive().is_empty() {
                continue;
            }
            if self.world.level == Consistency::Strong && self.dice.percent(20) {
                self.use_catalogue().await;
                continue;
            }
            let item = self.dice.pick(&ITEMS);
            match self.dice.roll(12) {
                0..5 => self.read(item).await,
                5..8 => self.write(item, None).await,
                8 => {
                    let seen = self.versions.iter().find(|(known, ..)| *known == item).cloned();
                    self.write(item, seen.map(|(_, value, etag)| (value, etag))).await;
                }
                9 | 10 => self.write_pair().await,
                _ => self.read_pair().await,
            }
        }
    }

    /// What the client tells a region it has seen; only sessions do.
    fn options(&self) -> Options {
        Options {
            session: (self.world.level == Consistency::Session).then(|| self.session.clone()),
            ..Options::default()
        }
    }

    /// `None` when no answer comes. One that a region's death overtakes does not.
    async fn execute(&self, region: &str, operation: Operation) -> Option<Result<Reply, Failure>> {
        let node = self.world.node(region);
        let answered = timeout(PATIENCE, node.execute(request(operation, self.options()))).await;
        let lives = Arc::ptr_eq(&node, &self.world.node(region)) && !self.world.dead().contains(&region);
        answered.ok().filter(|_| lives)
    }

    /// One that can be reached.
    fn some_region(&mut self) -> &'static str {
        self.dice.pick(&self.world.alive())
    }

    /// When a call begins: its place among all others, and the time.
    fn begin(&self) -> (Tick, u64) {
        (self.world.tick(), self.world.now_ms())
    }

    async fn read(&mut self, item: Item) {
        let region = self.some_region();
        let verb = ItemVerb::Read {
            item: ItemSelector::Id(item.1.to_owned()),
        };
        let (invoked, sent) = (self.begin(), self.options().session);
        let answered = self
            .execute(region, item_operation(item.0, verb, Precondition::None))
            .await;
        let token = sent.and_then(|sent| self.known_of(&sent, region, item));
        let answer = self.read_answer(item, answered);
        self.record(region, item, Action::Read, (invoked, token), answer);
    }

    fn read_answer(&mut self, item: Item, answered: Option<Result<Reply, Failure>>) -> Answer {
        let (found, facts) = match answered {
            None => return Answer::Unknown,
            Some(Ok(reply)) => (Some(reply.outcome), reply.facts),
            Some(Err(failure)) if failure.error.status().code == 404 && failure.error.status().sub == 0 => {
                (None, *failure.facts)
            }
            Some(Err(failure)) => return refusal(&failure),
        };
        let Some(partition) = facts.partition else {
            return Answer::Refused(404, 0);
        };
        self.session.merge(&partition.session());
        let at = partition
            .session()
            .get(partition.partition)
            .map(|seen| (seen.version, seen.lsn));
        let found = found.map(|outcome| {
            let Outcome::Found(resource) = outcome else {
                panic!("a read answers an item: {outcome:?}")
            };
            let value = value_of(&resource.body);
            self.remember(item, value, resource.etag);
            (value, partition.item_lsn.expect("an item has an LSN"))
        });
        Answer::Read {
            found,
            at: at.expect("an answer says where the partition stood"),
        }
    }

    fn remember(&mut self, item: Item, value: u64, etag: String) {
        self.versions.retain(|(known, ..)| *known != item);
        self.versions.push((item, value, etag));
    }

    fn next_value(&self) -> u64 {
        let mut recorded = self.world.recorded();
        recorded.value += 1;
        recorded.value
    }

    async fn write(&mut self, item: Item, over: Option<(u64, String)>) {
        let (region, value) = (self.world.writer(), self.next_value());
        let body = body(item.0, item.1, value);
        let (verb, precondition, expected) = match over {
            None => (ItemVerb::Upsert { body }, Precondition::None, None),
            Some((seen, etag)) => {
                let item = ItemSelector::Id(item.1.to_owned());
                (
                    ItemVerb::Replace { item, body },
                    Precondition::IfMatch(etag),
                    Some(seen),
                )
            }
        };
        let invoked = self.begin();
        let answered = self.execute(region, item_operation(item.0, verb, precondition)).await;
        let answer = match answered {
            None => Answer::Unknown,
            Some(Err(failure)) => refusal(&failure),
            Some(Ok(reply)) => self.written(item, value, reply),
        };
        self.record(region, item, Action::Write { value, expected }, (invoked, None), answer);
    }

    fn written(&mut self, item: Item, value: u64, reply: Reply) -> Answer {
        let partition = reply.facts.partition.expect("a write reached a partition");
        self.session.merge(&partition.session());
        if let Outcome::Created(resource) | Outcome::Found(resource) = reply.outcome {
            self.remember(item, value, resource.etag);
        }
        let progress = partition
            .session()
            .get(partition.partition)
            .expect("the token is about the partition");
        let lsn = partition.item_lsn.expect("a write has an LSN");
        self.world.observe(Some((item, lsn)));
        Answer::Written {
            lsn,
            version: progress.version,
        }
    }

    /// What a session has seen of the partition that serves an item in a region, or of one of its ancestors.
    fn known_of(&self, sent: &SessionToken, region: &str, item: Item) -> Option<(i64, Lsn)> {
        let partition = self.world.partition_of(region, item.0)?;
        let known = partition.parents.iter().chain([&partition.partition]);
        let known = known.filter_map(|partition| sent.get(*partition));
        known.map(|seen| (seen.version, seen.lsn)).max()
    }

    fn record(
        &self,
        region: &'static str,
        item: Item,
        action: Action,
        ((invoked, asked_ms), token): ((Tick, u64), Option<(i64, Lsn)>),
        answer: Answer,
    ) {
        let completed = self.world.tick();
        let answered_ms = self.world.now_ms();
        self.world.note(format!(
            "client {} in {region}: {item:?} {action:?} {answer:?}",
            self.number
        ));
        self.world.recorded().history.calls.push(Call {
            client: self.number,
            region,
            item,
            action,
            invoked,
            completed,
            asked_ms,
            answered_ms,
            token,
            answer,
        });
    }

    /// Writes or reads something that the catalogue holds.
    async fn use_catalogue(&mut self) {
        let is_write = self.dice.percent(40);
        let (region, action, verb) = match is_write {
            true => {
                let value = self.next_value();
                let action = Action::Write { value, expected: None };
                (self.world.writer(), action, write_script(value))
            }
            false => (self.some_region(), Action::Read, read_script()),
        };
        let (invoked, asked_ms) = self.begin();
        let answer = match self.execute(region, script_operation(verb)).await {
            None => Answer::Unknown,
            Some(Ok(Reply {
                outcome: Outcome::Found(resource),
                ..
            })) if !is_write => {
                let value = text(&resource.body, "body").parse().expect("the script is a number");
                Answer::Read {
                    found: Some((value, Lsn::ZERO)),
                    at: (0, Lsn::ZERO),
                }
            }
            Some(Ok(_)) => Answer::Written {
                lsn: Lsn::ZERO,
                version: 0,
            },
            Some(Err(failure)) if !is_write && failure.error.status().code == 404 => Answer::Read {
                found: None,
                at: (0, Lsn::ZERO),
            },
            Some(Err(failure)) => refusal(&failure),
        };
        let completed = self.world.tick();
        self.world.note(format!(
            "client {} in {region}: catalogue {action:?} {answer:?}",
            self.number
        ));
        self.world.recorded().history.catalogue.push(Call {
            client: self.number,
            region,
            item: SCRIPT,
            action,
            invoked,
            completed,
            asked_ms,
            answered_ms: self.world.now_ms(),
            token: None,
            answer,
        });
    }

    async fn write_pair(&mut self) {
        let value = self.next_value();
        let steps = PAIR.map(|id| BatchStep {
            partition_key: None,
            precondition: Precondition::None,
            directive: IndexingDirective::Default,
            verb: ItemVerb::Upsert {
                body: body("pair", id, value),
            },
        });
        let operation = BatchOperation {
            container: container(),
            partition_key: Some(partition_key("pair")),
            partition: None,
            atomic: true,
            continue_on_error: false,
            steps: steps.into(),
        };
        let region = self.world.writer();
        let answered = self.execute(region, Operation::Batch(operation)).await;
        if let Some(Ok(reply)) = answered
            && let Some(partition) = reply.facts.partition
        {
            self.session.merge(&partition.session());
        }
    }

    async fn read_pair(&mut self) {
        let region = self.some_region();
        let operation = Operation::ReadFeed {
            container: container(),
            target: FeedTarget {
                partition_key: Some(partition_key("pair")),
                ..FeedTarget::default()
            },
            page: Page::default(),
        };
        let Some(Ok(Reply {
            outcome: Outcome::Feed(feed),
            ..
        })) = self.execute(region, operation).await
        else {
            return;
        };
        let values: Vec<(String, u64)> = feed
            .entries
            .iter()
            .map(|entry| (text(entry, "id"), value_of(entry)))
            .collect();
        let of = |id: &str| values.iter().find(|(name, _)| name == id).map(|(_, value)| *value);
        let at = self.world.tick();
        self.world.recorded().history.pairs.push(PairRead {
            at,
            region,
            values: (of(PAIR[0]), of(PAIR[1])),
        });
    }
}

/// Only some failures say that nothing happened.
fn refusal(failure: &Failure) -> Answer {
    let status = failure.error.status();
    match status.code {
        408 | 449 => Answer::Unknown,
        code => Answer::Refused(code, status.sub),
    }
}
