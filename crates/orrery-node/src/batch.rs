//! Several item operations in one request: all or nothing in one logical partition, or each on its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::join_all;
use orrery_model::limits::BATCH_RESULT_BYTES_MAX;
use orrery_model::{Charge, Epk, Error, Lsn, Result, Status};
use orrery_partition::command::{Action, Command, Effect, Step, StepResult};

use crate::api::{self, BatchOperation, BatchStep, Facts, Failure, Options, Outcome, Principal, Reply};
use crate::authorize;
use crate::catalogue::ContainerEntry;
use crate::items::{
    Demand, check_scope, check_scope_of_rename, find_container, finish, gone, prepare, required_key, send,
};
use crate::node::Node;
use crate::partition::{Answer, Partition};

pub async fn execute(
    node: &Arc<Node>,
    principal: &Principal,
    options: &Options,
    operation: BatchOperation,
) -> Result<Reply, Failure> {
    let container = find_container(node, options, &operation.container)?;
    let mut facts = Facts {
        container: Some(Arc::clone(&container.facts)),
        ..Facts::default()
    };
    let results = if operation.atomic {
        transaction(node, principal, &container, operation, &mut facts).await
    } else {
        bulk(node, principal, &container, operation, &mut facts).await
    };
    finish(results.map(Outcome::Batch), facts)
}

async fn transaction(
    node: &Arc<Node>,
    principal: &Principal,
    container: &Arc<ContainerEntry>,
    operation: BatchOperation,
    facts: &mut Facts,
) -> Result<Vec<api::StepResult>> {
    let key = required_key(container, operation.partition_key.as_ref())?;
    let epk = Epk::of(container.definition.partition_key(), &key);
    for step in &operation.steps {
        check_scope(node, principal, container, (&key, &epk), step.verb.item())?;
    }
    let n_steps = operation.steps.len();
    let mut steps = Vec::with_capacity(n_steps);
    for (index, step) in operation.steps.into_iter().enumerate() {
        match prepare(container, Some(&key), demand(step)) {
            Ok(step) => {
                check_scope_of_rename(principal, container, &step)?;
                steps.push(step);
            }
            Err(error) => return Ok(not_executed(n_steps, index, error)),
        }
    }
    let answer = send(node, container, &epk, Command::Batch(steps), facts).await?;
    Ok(answer.results.into_iter().map(result).collect())
}

fn demand(step: BatchStep) -> Demand {
    let BatchStep {
        precondition,
        directive,
        verb,
        ..
    } = step;
    Demand {
        precondition,
        directive,
        verb,
    }
}

/// A step that cannot even be read fails like one that was tried: itself with its error, the others with 424.
fn not_executed(n_steps: usize, failed: usize, error: Error) -> Vec<api::StepResult> {
    let mut error = Some(error);
    let mut results = Vec::with_capacity(n_steps);
    for index in 0..n_steps {
        let error = if index == failed { error.take() } else { None };
        let error =
            error.unwrap_or_else(|| Error::new(Status::FAILED_DEPENDENCY, "Another operation of the batch failed."));
        results.push(failure(&error));
    }
    results
}

/// Steps of different keys, each succeeding or failing by itself. They are all under way at once, so one group commit
/// carries many; steps on one item keep their order because they wait in one inbox.
async fn bulk(
    node: &Arc<Node>,
    principal: &Principal,
    container: &Arc<ContainerEntry>,
    operation: BatchOperation,
    facts: &mut Facts,
) -> Result<Vec<api::StepResult>> {
    let BatchOperation {
        partition,
        partition_key,
        steps,
        continue_on_error,
        ..
    } = operation;
    let mut prepared: Vec<Result<Step>> = Vec::with_capacity(steps.len());
    for mut step in steps {
        let own = step.partition_key.take();
        let item = step
            .verb
            .item()
            .filter(|_| authorize::is_about_an_item(principal))
            .cloned();
        let step = prepare(container, own.as_ref().or(partition_key.as_ref()), demand(step));
        let step = step.and_then(|step| {
            check_scope(node, principal, container, (&step.key, &step.epk), item.as_ref())?;
            check_scope_of_rename(principal, container, &step)?;
            Ok(step)
        });
        if let (Some(partition), Ok(step)) = (partition, &step) {
            let range = container.range(partition).ok_or_else(gone)?;
            if !range.range.contains(&step.epk) {
                return Err(gone());
            }
        }
        prepared.push(step);
    }
    let results = if continue_on_error {
        all_at_once(node, container, prepared, facts).await
    } else {
        one_by_one(node, container, prepared, facts).await
    };
    let results = match node.duty.clustered {
        true => results.into_iter().map(moved_away).collect(),
        false => results,
    };
    facts.charge = results.iter().fold(Charge::ZERO, |mut sum, result| {
        sum += result.charge;
        sum
    });
    Ok(results)
}

/// A step whose partition has gone to another node was not done; clients that send many steps know what to do about those.
fn moved_away(step: api::StepResult) -> api::StepResult {
    let status = Status::WRITE_FORBIDDEN;
    if (step.status, step.sub_status) != (status.code, status.sub) {
        return step;
    }
    failure(&Error::new(Status::PARTITION_SPLITTING, "The partition is moving.").with_retry_after_ms(100))
}

/// Puts every step into its partition's inbox before waiting for any.
async fn all_at_once(
    node: &Arc<Node>,
    container: &Arc<ContainerEntry>,
    steps: Vec<Result<Step>>,
    facts: &mut Facts,
) -> Vec<api::StepResult> {
    let room = Room::default();
    let mut under_way = Vec::with_capacity(steps.len());
    let mut reached = None;
    for step in &steps {
        let submitted = match step {
            Ok(step) => submit(node, container, step, &mut reached).await,
            Err(_) => Ok(None),
        };
        let (room, is_read) = (&room, step.as_ref().is_ok_and(is_read));
        under_way.push(async move {
            match submitted {
                Ok(Some(answer)) => answer.await.map(|answer| room.take(is_read, answer)),
                Ok(None) => Err(gone()),
                Err(error) => Err(error),
            }
        });
    }
    // Together, so that an answer that does not fit is let go as soon as it comes.
    let answers = join_all(under_way).await;
    // Only now: what the client is told it has seen must include what these steps wrote.
    if let Some(partition) = reached {
        facts.partition = Some(partition.facts(Lsn::ZERO, None));
    }
    let mut results = Vec::with_capacity(steps.len());
    for (step, answer) in steps.into_iter().zip(answers) {
        let moved = matches!(&answer, Err(error) if error.status() == Status::PARTITION_GONE);
        results.push(match (step, answer) {
            (Err(error), _) => failure(&error),
            (Ok(step), _) if moved => run(node, container, step, &room, facts).await,
            (Ok(_), answer) => first_result(answer),
        });
    }
    results
}

/// Sends a step to its partition, which becomes the one that was `reached` last.
async fn submit(
    node: &Node,
    container: &ContainerEntry,
    step: &Step,
    reached: &mut Option<Arc<Partition>>,
) -> Result<Option<impl Future<Output = Result<Answer>> + use<>>> {
    let Some(range) = container.route(&step.epk) else {
        return Ok(None);
    };
    let Ok(partition) = node.partition(range) else {
        return Ok(None);
    };
    partition.throttle.admit(|| node.now())?;
    let answer = partition.submit(Command::Item(step.clone())).await?;
    *reached = Some(Arc::clone(&partition));
    Ok(Some(async move {
        let answer = answer.await;
        for result in answer.iter().flat_map(|answer| &answer.results) {
            partition.throttle.pay(result.charge);
        }
        answer
    }))
}

fn is_read(step: &Step) -> bool {
    matches!(step.action, Action::Read(_))
}

/// How much the steps of one request have given back, of what fits into its answer.
#[derive(Debug, Default)]
struct Room {
    bytes: AtomicUsize,
}

impl Room {
    /// Lets the content go that does not fit. A read without it has failed; a write has happened all the same.
    fn take(&self, is_read: bool, mut answer: Answer) -> Answer {
        for result in &mut answer.results {
            let Ok(outcome) = &mut result.outcome else { continue };
            let bytes = outcome.body.as_ref().map_or(0, Bytes::len);
            if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= BATCH_RESULT_BYTES_MAX {
                continue;
            }
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            match is_read {
                true => result.outcome = Err(Error::new(Status::TOO_LARGE, "Response size is too large")),
                false => outcome.body = None,
            }
        }
        answer
    }
}

/// Stops at the first failure; what follows is not tried.
async fn one_by_one(
    node: &Arc<Node>,
    container: &Arc<ContainerEntry>,
    steps: Vec<Result<Step>>,
    facts: &mut Facts,
) -> Vec<api::StepResult> {
    let mut results: Vec<api::StepResult> = Vec::with_capacity(steps.len());
    let mut failed = false;
    let room = Room::default();
    for step in steps {
        let result = match step {
            _ if failed => failure(&Error::new(Status::FAILED_DEPENDENCY, "An earlier operation failed.")),
            Ok(step) => run(node, container, step, &room, facts).await,
            Err(error) => failure(&error),
        };
        failed |= result.status >= 400;
        results.push(result);
    }
    results
}

async fn run(
    node: &Arc<Node>,
    container: &Arc<ContainerEntry>,
    step: Step,
    room: &Room,
    facts: &mut Facts,
) -> api::StepResult {
    let (epk, is_read) = (step.epk.clone(), is_read(&step));
    let answer = send(node, container, &epk, Command::Item(step), facts).await;
    first_result(answer.map(|answer| room.take(is_read, answer)))
}

fn first_result(answer: Result<Answer>) -> api::StepResult {
    match answer {
        Ok(answer) => match answer.results.into_iter().next() {
            Some(step) => result(step),
            None => failure(&Error::new(Status::INTERNAL, "The operation ended without an answer.")),
        },
        Err(error) => failure(&error),
    }
}

fn result(step: StepResult) -> api::StepResult {
    match step.outcome {
        Ok(outcome) => api::StepResult {
            status: match outcome.effect {
                Effect::Created => 201,
                Effect::Current => 200,
                Effect::Deleted => 204,
                Effect::NotModified => 304,
            },
            sub_status: 0,
            charge: step.charge,
            etag: outcome.etag,
            body: outcome.body,
            retry_after_ms: None,
        },
        Err(error) => failure(&error),
    }
}

fn failure(error: &Error) -> api::StepResult {
    let status = error.status();
    api::StepResult {
        status: status.code,
        sub_status: status.sub,
        charge: Charge::read_nothing(),
        etag: None,
        body: None,
        retry_after_ms: error.retry_after_ms(),
    }
}
