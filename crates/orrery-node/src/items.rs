//! Operations on one item: check, route, read or write.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::etag::Precondition;
use orrery_model::rid::ChildKind;
use orrery_model::session::SessionProgress;
use orrery_model::{Charge, Epk, Error, Etag, IndexingDirective, Lsn, PartitionKey, ResourceId, Result, Status};
use orrery_partition::command::{Action, Command, Effect, Step, StepOutcome, Target};
use orrery_partition::decide::{not_found, precondition_failed};
use orrery_partition::draft::ItemDraft;
use orrery_partition::expiry::is_expired;
use orrery_partition::stored::StoredItem;

use crate::api::{
    ContainerRef, Facts, Failure, ItemBody, ItemOperation, ItemSelector, ItemVerb, Options, Outcome, Principal, Reply,
    Resource,
};
use crate::authorize;
use crate::catalogue::ContainerEntry;
use crate::node::Node;
use crate::partition::{Answer, Partition};

/// How long a write follows a split or merge before it gives up.
const RESHARD_WAIT: Duration = Duration::from_secs(5);

pub async fn execute(
    node: &Arc<Node>,
    principal: &Principal,
    options: &Options,
    operation: ItemOperation,
) -> Result<Reply, Failure> {
    let (container, mut facts) = begin(node, options, &operation.container)?;
    let ItemOperation {
        partition_key,
        precondition,
        directive,
        verb,
        ..
    } = operation;
    let key = partition_key.as_ref();
    let result = match verb {
        ItemVerb::Read { item } => {
            let read = Read {
                principal,
                options,
                key,
                precondition: &precondition,
                item: &item,
            };
            read.execute(node, &container, &mut facts).await
        }
        // Boxed, so that reads do not carry the state of writing.
        verb => {
            let demand = Demand {
                precondition,
                directive,
                verb,
            };
            Box::pin(write(node, principal, &container, key, demand, &mut facts)).await
        }
    };
    finish(result, facts)
}

/// Executes a read that has nothing to wait for; `None` when it has, or when it is no read. Only for nodes whose reads wait for
/// nothing but what their clients have seen.
pub fn read_at_once(
    node: &Node,
    principal: &Principal,
    options: &Options,
    operation: &ItemOperation,
) -> Option<Result<Reply, Failure>> {
    let read = Read::of(principal, options, operation)?;
    let (container, mut facts) = match begin(node, options, &operation.container) {
        Ok(begun) => begun,
        Err(error) => return Some(Err(error.into())),
    };
    let result = match read.place(node, &container) {
        Ok(place) => {
            let result = read.execute_at_once(node, &place, &mut facts)?;
            tell_progress(&result, &place, &mut facts);
            result
        }
        Err(error) => Err(error),
    };
    Some(finish(result, facts))
}

pub fn begin(node: &Node, options: &Options, container: &ContainerRef) -> Result<(Arc<ContainerEntry>, Facts)> {
    let container = find_container(node, options, container)?;
    let facts = Facts {
        container: Some(Arc::clone(&container.facts)),
        charge: Charge::read_nothing(),
        ..Facts::default()
    };
    Ok((container, facts))
}

/// Failures tell what was known, so that clients can keep their session.
pub fn finish(result: Result<Outcome>, facts: Facts) -> Result<Reply, Failure> {
    match result {
        Ok(outcome) => Ok(Reply { outcome, facts }),
        Err(error) => Err(Failure {
            error,
            facts: Box::new(facts),
        }),
    }
}

/// The container of a request, as the client believes it to be.
pub fn find_container(node: &Node, options: &Options, container: &ContainerRef) -> Result<Arc<ContainerEntry>> {
    let found = node.control.catalogue().resolve(container)?;
    match &options.intended_container {
        Some(intended) if *intended != found.rid => Err(Error::new(
            Status::STALE_CONTAINER_RID,
            "The container has been recreated since the client last read it.",
        )),
        _ => Ok(found),
    }
}

/// A point read.
#[derive(Clone, Copy)]
pub struct Read<'a> {
    principal: &'a Principal,
    options: &'a Options,
    key: Option<&'a PartitionKey>,
    precondition: &'a Precondition,
    item: &'a ItemSelector,
}

/// Where a point read looks.
pub struct Place {
    epk: Epk,
    pub container: Arc<ContainerEntry>,
    pub partition: Arc<Partition>,
}

impl<'a> Read<'a> {
    /// The read that an operation is, if it is one.
    pub fn of(principal: &'a Principal, options: &'a Options, operation: &'a ItemOperation) -> Option<Read<'a>> {
        let ItemVerb::Read { item } = &operation.verb else {
            return None;
        };
        Some(Read {
            principal,
            options,
            key: operation.partition_key.as_ref(),
            precondition: &operation.precondition,
            item,
        })
    }

    async fn execute(self, node: &Node, container: &Arc<ContainerEntry>, facts: &mut Facts) -> Result<Outcome> {
        let place = self.place(node, container)?;
        let result = self.execute_at(node, &place, facts).await;
        tell_progress(&result, &place, facts);
        result
    }

    async fn execute_at(self, node: &Node, place: &Place, facts: &mut Facts) -> Result<Outcome> {
        place.partition.throttle.admit(|| node.now())?;
        if let Some(wanted) = self.unseen(node, place)? {
            place.partition.wait_until(wanted).await?;
        }
        node.await_bound(self.options, &place.partition).await?;
        let found = self.find(place)?;
        let head = place.partition.log.head();
        node.confirm(self.options, &place.partition, head.lsn).await?;
        self.answer(node, place, found, facts)
    }

    /// The same where only a session may have to be waited for. `None` when it has to.
    pub fn execute_at_once(self, node: &Node, place: &Place, facts: &mut Facts) -> Option<Result<Outcome>> {
        if let Err(error) = place.partition.throttle.admit(|| node.now()) {
            return Some(Err(error));
        }
        match self.unseen(node, place) {
            Ok(None) => {
                let found = self.find(place);
                Some(found.and_then(|found| self.answer(node, place, found, facts)))
            }
            Ok(Some(_)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    pub fn place(self, node: &Node, container: &Arc<ContainerEntry>) -> Result<Place> {
        let key = required_key(container, self.key)?;
        let epk = Epk::of(container.definition.partition_key(), &key);
        check_scope(node, self.principal, container, (&key, &epk), Some(self.item))?;
        let (container, partition) = serving(node, container, &epk)?;
        Ok(Place {
            epk,
            container,
            partition,
        })
    }

    /// What the client has seen of the partition that the partition has not.
    fn unseen(self, node: &Node, place: &Place) -> Result<Option<SessionProgress>> {
        let Place {
            container, partition, ..
        } = place;
        if self.options.session.is_none() {
            return Ok(None);
        }
        let Some(session) = self.options.session(node.account().consistency) else {
            return Ok(None);
        };
        let ancestors = container.range(partition.id).map_or(&[][..], |range| &range.parents);
        partition.unseen(session, ancestors, container.n_partitions_ever)
    }

    /// The item as it is stored, expired or not.
    fn find(self, place: &Place) -> Result<Option<Arc<StoredItem>>> {
        let Place {
            epk,
            container,
            partition,
        } = place;
        match self.item {
            ItemSelector::Id(id) => partition.find(&container.definition, epk, id),
            ItemSelector::Rid(rid) => match item_number(container, rid) {
                Some(number) => partition.find_number(&container.definition, epk, number),
                None => Ok(None),
            },
        }
    }

    fn answer(self, node: &Node, place: &Place, found: Option<Arc<StoredItem>>, facts: &mut Facts) -> Result<Outcome> {
        let Place {
            container, partition, ..
        } = place;
        let found = found.filter(|item| !is_expired(&container.definition, item, node.now()));
        let item_lsn = found.as_ref().map(|item| item.lsn);
        facts.partition = Some(partition.facts(item_lsn.unwrap_or(Lsn::ZERO), item_lsn));
        facts.charge = node.charge_of_read(self.options, Charge::read_nothing());
        let found = found.ok_or_else(not_found)?;
        let for_nothing = facts.charge;
        facts.charge = node.charge_of_read(self.options, Charge::read(found.body.len()));
        partition.throttle.pay(facts.charge);
        let etag = found.etag.quoted();
        match self.precondition {
            Precondition::IfNoneMatch(_) if !self.precondition.holds(Some(&found.etag)) => {
                facts.charge = for_nothing;
                Ok(Outcome::NotModified { etag })
            }
            Precondition::IfMatch(_) if !self.precondition.holds(Some(&found.etag)) => Err(precondition_failed()),
            _ => Ok(Outcome::Found(Resource {
                body: found.body.clone(),
                etag,
            })),
        }
    }
}

/// A refusal that comes from a partition tells where it stands, like any answer.
pub fn tell_progress(result: &Result<Outcome>, place: &Place, facts: &mut Facts) {
    if result.is_err() {
        let partition = &place.partition;
        facts.partition.get_or_insert_with(|| partition.facts(Lsn::ZERO, None));
    }
}

async fn write(
    node: &Arc<Node>,
    principal: &Principal,
    container: &Arc<ContainerEntry>,
    key: Option<&PartitionKey>,
    demand: Demand,
    facts: &mut Facts,
) -> Result<Outcome> {
    // Known before the step is made of it, and needed after: the step has the key.
    let item = demand
        .verb
        .item()
        .filter(|_| authorize::is_about_an_item(principal))
        .cloned();
    let step = prepare(container, key, demand)?;
    check_scope(node, principal, container, (&step.key, &step.epk), item.as_ref())?;
    check_scope_of_rename(principal, container, &step)?;
    let epk = step.epk.clone();
    let answer = send(node, container, &epk, Command::Item(step), facts).await?;
    let result = answer
        .results
        .into_iter()
        .next()
        .ok_or_else(|| Error::new(Status::INTERNAL, "a command gave no result"))?;
    facts.charge = result.charge;
    outcome_of(result.outcome?)
}

pub fn outcome_of(outcome: StepOutcome) -> Result<Outcome> {
    let StepOutcome { effect, etag, body, .. } = outcome;
    let etag = etag.map(Etag::quoted).unwrap_or_default();
    Ok(match effect {
        Effect::Created => Outcome::Created(Resource {
            body: body.unwrap_or_default(),
            etag,
        }),
        Effect::Current => Outcome::Found(Resource {
            body: body.unwrap_or_default(),
            etag,
        }),
        Effect::Deleted => Outcome::Deleted,
        Effect::NotModified => Outcome::NotModified { etag },
    })
}

/// The partition that serves an EPK, also when it was split or merged since the request found its container.
fn serving(node: &Node, container: &Arc<ContainerEntry>, epk: &Epk) -> Result<(Arc<ContainerEntry>, Arc<Partition>)> {
    let mut container = Arc::clone(container);
    loop {
        let range = container.route(epk).ok_or_else(gone)?;
        let error = match node.partition(range) {
            Ok(partition) => return Ok((container, partition)),
            Err(error) => error,
        };
        let current = node.control.catalogue().container(&container.rid).cloned();
        let current = current.ok_or_else(crate::catalogue::owner_not_found)?;
        if current.route(epk).is_none_or(|now| now.log == range.log) {
            return Err(error);
        }
        container = current;
    }
}

/// Sends a command to the partition that holds `epk`, and follows it through a split or merge.
pub async fn send(
    node: &Arc<Node>,
    container: &Arc<ContainerEntry>,
    epk: &Epk,
    command: Command,
    facts: &mut Facts,
) -> Result<Answer> {
    let mut container = Arc::clone(container);
    let give_up = tokio::time::Instant::now() + RESHARD_WAIT;
    loop {
        let seen = node.control.lsn();
        let range = container.route(epk).ok_or_else(gone)?;
        let answer = match node.partition(range) {
            Ok(partition) => send_to(node, &partition, command.clone(), facts).await,
            Err(error) => Err(error),
        };
        match answer {
            Err(error) if error.status() == Status::PARTITION_GONE => {
                let current = node
                    .control
                    .catalogue()
                    .container(&container.rid)
                    .cloned()
                    .ok_or_else(crate::catalogue::owner_not_found)?;
                let unchanged = current.route(epk).is_some_and(|now| now.log == range.log);
                if unchanged
                    && tokio::time::timeout_at(give_up, node.control.changed_after(seen))
                        .await
                        .is_err()
                {
                    return Err(
                        Error::new(Status::PARTITION_SPLITTING, "The partition is being split or merged.")
                            .with_retry_after_ms(100),
                    );
                }
                container = node
                    .control
                    .catalogue()
                    .container(&container.rid)
                    .cloned()
                    .ok_or_else(crate::catalogue::owner_not_found)?;
            }
            other => return other,
        }
    }
}

/// Sends a command to one partition.
pub async fn send_to(node: &Node, partition: &Partition, command: Command, facts: &mut Facts) -> Result<Answer> {
    if let Err(error) = partition.throttle.admit(|| node.now()) {
        facts.partition = Some(partition.facts(Lsn::ZERO, None));
        return Err(error);
    }
    let answer = partition.command(command).await;
    let lsn = answer.as_ref().map_or(Lsn::ZERO, |answer| answer.lsn);
    facts.partition = Some(partition.facts(lsn, answer.is_ok().then_some(lsn)));
    let charge = answer.as_ref().map_or(Charge::read_nothing(), |answer| {
        answer.results.iter().fold(Charge::ZERO, |mut sum, result| {
            sum += result.charge;
            sum
        })
    });
    partition.throttle.pay(charge);
    facts.charge = charge;
    answer
}

/// What a client wants done with an item.
pub struct Demand {
    pub precondition: Precondition,
    pub directive: IndexingDirective,
    pub verb: ItemVerb,
}

impl Demand {
    /// Without any conditions.
    pub fn plain(verb: ItemVerb) -> Demand {
        Demand {
            precondition: Precondition::None,
            directive: IndexingDirective::Default,
            verb,
        }
    }
}

/// Checks one item operation and routes it.
pub fn prepare(container: &ContainerEntry, key: Option<&PartitionKey>, demand: Demand) -> Result<Step> {
    let definition = &*container.definition;
    let draft = |body: ItemBody| ItemDraft::new(definition, &body.text, body.parsed);
    let target = |item: ItemSelector| match item {
        ItemSelector::Id(id) => Ok(Target::Id(id)),
        ItemSelector::Rid(rid) => item_number(container, &rid).map(Target::Number).ok_or_else(not_found),
    };
    let action = match demand.verb {
        ItemVerb::Create { body } => Action::Create(draft(body)?),
        ItemVerb::Upsert { body } => Action::Upsert(draft(body)?),
        ItemVerb::Read { item } => Action::Read(target(item)?),
        ItemVerb::Replace { item, body } => Action::Replace(target(item)?, draft(body)?),
        ItemVerb::Patch { item, patch } => Action::Patch(target(item)?, patch),
        ItemVerb::Delete { item } => Action::Delete(target(item)?),
    };
    let own_key = match &action {
        Action::Create(draft) | Action::Upsert(draft) => Some((&draft.key, true)),
        Action::Replace(_, draft) => Some((&draft.key, false)),
        _ => None,
    };
    let key = match (key, own_key) {
        (None, Some((own, true))) => own.clone(),
        (key, own) => {
            let key = required_key(container, key)?.into_owned();
            if own.is_some_and(|(own, _)| *own != key) {
                return Err(Error::new(
                    Status::PARTITION_KEY_MISMATCH,
                    "PartitionKey extracted from document doesn't match the one specified in the header",
                ));
            }
            key
        }
    };
    let epk = Epk::of(definition.partition_key(), &key);
    Ok(Step {
        epk,
        key,
        precondition: demand.precondition,
        directive: demand.directive,
        action,
    })
}

pub fn required_key<'a>(container: &ContainerEntry, key: Option<&'a PartitionKey>) -> Result<Cow<'a, PartitionKey>> {
    let key = key.ok_or_else(|| Error::bad_request("PartitionKey value must be supplied for this operation."))?;
    container.definition.partition_key().complete(key)
}

/// The number of an item in this container, if the resource id is one.
pub fn item_number(container: &ContainerEntry, rid: &ResourceId) -> Option<u64> {
    let own = rid.as_bytes().strip_prefix(container.rid.as_bytes())?;
    let number = u64::from_le_bytes(own.try_into().ok()?);
    (number >> 60 == ChildKind::Item as u64).then_some(number)
}

/// Refuses an operation on an item, or on none in particular, that a resource token was not issued for.
pub fn check_scope(
    node: &Node,
    principal: &Principal,
    container: &Arc<ContainerEntry>,
    (key, epk): (&PartitionKey, &Epk),
    item: Option<&ItemSelector>,
) -> Result<()> {
    let found;
    let id = match item {
        Some(ItemSelector::Id(id)) => Some(id.as_str()),
        // An item keeps its id for as long as it has its number, so what is found here still holds when it is used.
        Some(ItemSelector::Rid(rid)) if authorize::is_about_an_item(principal) => {
            found = id_of(node, container, epk, rid)?;
            found.as_deref()
        }
        Some(ItemSelector::Rid(_)) | None => None,
    };
    authorize::scope(principal, &container.rid, Some(key), id)
}

/// Refuses to put an item in the place of another that a resource token was not issued for.
pub fn check_scope_of_rename(principal: &Principal, container: &ContainerEntry, step: &Step) -> Result<()> {
    match &step.action {
        Action::Replace(_, draft) if authorize::is_about_an_item(principal) => {
            authorize::scope(principal, &container.rid, Some(&step.key), Some(&draft.id))
        }
        _ => Ok(()),
    }
}

/// The id of the item with a resource id.
fn id_of(node: &Node, container: &Arc<ContainerEntry>, epk: &Epk, rid: &ResourceId) -> Result<Option<String>> {
    let Some(number) = item_number(container, rid) else {
        return Ok(None);
    };
    let (container, partition) = serving(node, container, epk)?;
    let item = partition.find_number(&container.definition, epk, number)?;
    Ok(item.and_then(|item| String::from_utf8(item.id.to_vec()).ok()))
}

/// Removes every item of one logical partition, a bounded number per transaction.
pub async fn delete_partition_key(
    node: &Arc<Node>,
    principal: &Principal,
    options: &Options,
    container: &ContainerRef,
    key: &PartitionKey,
) -> Result<Reply, Failure> {
    let container = find_container(node, options, container)?;
    let key = container.definition.partition_key().complete(key)?;
    authorize::scope(principal, &container.rid, Some(&key), None)?;
    let epk = Epk::of(container.definition.partition_key(), &key);
    let mut facts = Facts {
        container: Some(Arc::clone(&container.facts)),
        ..Facts::default()
    };
    // Of what was begun all is done, also when the client does not wait for it.
    let worker = Arc::clone(node);
    let deleted = node.uncancelled(async move {
        let result = delete_all(&worker, &container, &epk, &mut facts).await;
        Ok((result, facts))
    });
    let (result, facts) = deleted.await?;
    finish(result.map(|()| Outcome::Deleted), facts)
}

async fn delete_all(node: &Arc<Node>, container: &Arc<ContainerEntry>, epk: &Epk, facts: &mut Facts) -> Result<()> {
    const ITEMS_PER_TRANSACTION: usize = 500;
    let mut charge = Charge::ZERO;
    loop {
        let command = Command::DeleteKey {
            epk: epk.clone(),
            limit: ITEMS_PER_TRANSACTION,
        };
        let answer = send(node, container, epk, command, facts).await;
        charge += facts.charge;
        facts.charge = charge;
        if !answer?.more {
            return Ok(());
        }
    }
}

pub fn gone() -> Error {
    Error::new(
        Status::PARTITION_GONE,
        "The requested partition key range no longer exists.",
    )
}
