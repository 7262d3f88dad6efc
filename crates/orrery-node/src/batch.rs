//! Several item operations in one request: all or nothing in one logical partition, or each on its own.

use std::sync::Arc;

use orrery_model::{Charge, Epk, Error, Result, Status};
use orrery_partition::command::{Command, Effect, Step, StepResult};

use crate::api::{self, BatchOperation, BatchStep, Facts, Failure, Options, Outcome, Principal, Reply};
use crate::authorize;
use crate::catalogue::ContainerEntry;
use crate::items::{find_container, finish, gone, prepare, required_key, send};
use crate::node::Node;
use crate::partition::Answer;

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
    authorize::scope(principal, &container.rid, Some(&key), None)?;
    let epk = Epk::of(container.definition.partition_key(), &key);
    let n_steps = operation.steps.len();
    let mut steps = Vec::with_capacity(n_steps);
    for (index, BatchStep { precondition, verb, .. }) in operation.steps.into_iter().enumerate() {
        match prepare(container, Some(&key), precondition, verb) {
            Ok(step) => steps.push(step),
            Err(error) => return Ok(not_executed(n_steps, index, error)),
        }
    }
    let answer = send(node, container, &epk, Command::Batch(steps), facts).await?;
    Ok(answer.results.into_iter().map(result).collect())
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
    for BatchStep {
        partition_key: own,
        precondition,
        verb,
    } in steps
    {
        let step = prepare(container, own.as_ref().or(partition_key.as_ref()), precondition, verb);
        let step =
            step.and_then(|step| authorize::scope(principal, &container.rid, Some(&step.key), None).map(|()| step));
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
    facts.charge = results.iter().fold(Charge::ZERO, |mut sum, result| {
        sum += result.charge;
        sum
    });
    Ok(results)
}

/// Puts every step into its partition's inbox before waiting for any.
async fn all_at_once(
    node: &Arc<Node>,
    container: &Arc<ContainerEntry>,
    steps: Vec<Result<Step>>,
    facts: &mut Facts,
) -> Vec<api::StepResult> {
    let mut under_way = Vec::with_capacity(steps.len());
    for step in steps {
        let submitted = match &step {
            Ok(step) => submit(node, container, step, facts).await,
            Err(_) => Ok(None),
        };
        under_way.push((step, submitted));
    }
    let mut results = Vec::with_capacity(under_way.len());
    for (step, submitted) in under_way {
        let answer = match submitted {
            Ok(Some(answer)) => answer.await,
            Ok(None) => Err(gone()),
            Err(error) => Err(error),
        };
        let moved = matches!(&answer, Err(error) if error.status() == Status::PARTITION_GONE);
        results.push(match (step, answer) {
            (Err(error), _) => failure(&error),
            (Ok(step), _) if moved => run(node, container, step, facts).await,
            (Ok(_), answer) => first_result(answer),
        });
    }
    results
}

async fn submit(
    node: &Node,
    container: &ContainerEntry,
    step: &Step,
    facts: &mut Facts,
) -> Result<Option<impl Future<Output = Result<Answer>> + use<>>> {
    let Some(range) = container.route(&step.epk) else {
        return Ok(None);
    };
    let Ok(partition) = node.partition(range) else {
        return Ok(None);
    };
    partition.throttle.admit(|| node.now())?;
    let answer = partition.submit(Command::Item(step.clone())).await?;
    facts.partition = Some(partition.facts(orrery_model::Lsn::ZERO, None));
    let paying = Arc::clone(&partition);
    Ok(Some(async move {
        let answer = answer.await;
        for result in answer.iter().flat_map(|answer| &answer.results) {
            paying.throttle.pay(result.charge);
        }
        answer
    }))
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
    for step in steps {
        let result = match step {
            _ if failed => failure(&Error::new(Status::FAILED_DEPENDENCY, "An earlier operation failed.")),
            Ok(step) => run(node, container, step, facts).await,
            Err(error) => failure(&error),
        };
        failed |= result.status >= 400;
        results.push(result);
    }
    results
}

async fn run(node: &Arc<Node>, container: &Arc<ContainerEntry>, step: Step, facts: &mut Facts) -> api::StepResult {
    let epk = step.epk.clone();
    first_result(send(node, container, &epk, Command::Item(step), facts).await)
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
