//! Requests that meet: whatever the order they arrive in, precondition and write are one decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::etag::Precondition;
use orrery_node::api::{ItemSelector, ItemVerb};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{World, body_of, code, item};

const RACERS: usize = 8;
const ROUNDS: usize = 150;

const UNIQUE_EMAIL: &str = r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]}]}"#;

/// What one racer of one round asks.
type Attempt = fn(round: usize, racer: usize, etag: &str) -> (ItemVerb, Precondition);

fn same_id(round: usize, racer: usize, _: &str) -> (ItemVerb, Precondition) {
    let body = item(&format!(
        r#"{{"id":"i{round}","pk":"p","email":"e{round}-{racer}","racer":{racer}}}"#
    ));
    (ItemVerb::Create { body }, Precondition::None)
}

fn same_unique_value(round: usize, racer: usize, _: &str) -> (ItemVerb, Precondition) {
    let body = item(&format!(
        r#"{{"id":"u{round}-{racer}","pk":"p","email":"same{round}"}}"#
    ));
    (ItemVerb::Create { body }, Precondition::None)
}

/// Half of the racers replace, half delete; all of them the version they have seen.
fn same_version(_: usize, racer: usize, etag: &str) -> (ItemVerb, Precondition) {
    let target = ItemSelector::Id("contended".into());
    let verb = if racer.is_multiple_of(2) {
        let body = item(&format!(r#"{{"id":"contended","pk":"p","email":"x","racer":{racer}}}"#));
        ItemVerb::Replace { item: target, body }
    } else {
        ItemVerb::Delete { item: target }
    };
    (verb, Precondition::IfMatch(etag.to_owned()))
}

/// Sends all attempts of a round at once and counts the answers by status.
async fn race(world: &Arc<World>, round: usize, etag: &str, attempt: Attempt) -> BTreeMap<u16, usize> {
    let start = Arc::new(Barrier::new(RACERS));
    let mut racers = JoinSet::new();
    for racer in 0..RACERS {
        let (world, start, (verb, precondition)) = (Arc::clone(world), Arc::clone(&start), attempt(round, racer, etag));
        racers.spawn(async move {
            start.wait().await;
            code(world.item_if("p", verb, precondition).await)
        });
    }
    let mut answers = BTreeMap::new();
    while let Some(answer) = racers.join_next().await {
        *answers.entry(answer.unwrap()).or_default() += 1;
    }
    answers
}

async fn check_creates(attempt: Attempt) {
    let world = Arc::new(World::new().await);
    world.with_container(UNIQUE_EMAIL).await;
    for round in 0..ROUNDS {
        let answers = race(&world, round, "", attempt).await;
        assert_eq!(answers, BTreeMap::from([(201, 1), (409, RACERS - 1)]), "round {round}");
    }
    assert_eq!(world.all(1000).await.len(), ROUNDS);
}

async fn check_versions() {
    let world = Arc::new(World::new().await);
    world.with_container(UNIQUE_EMAIL).await;
    for round in 0..ROUNDS {
        let body = item(r#"{"id":"contended","pk":"p","email":"x"}"#);
        let before = body_of(world.item("p", ItemVerb::Upsert { body }).await.unwrap());
        let etag = before.get("_etag").unwrap().as_str().unwrap().to_owned();
        let answers = race(&world, round, &etag, same_version).await;
        let winners: usize = [200, 204].iter().filter_map(|status| answers.get(status)).sum();
        assert_eq!(winners, 1, "round {round}: {answers:?}");
        // Whoever came after a delete finds nothing, whoever came after a replace a newer version.
        let (missing, stale) = (
            answers.get(&404).copied().unwrap_or(0),
            answers.get(&412).copied().unwrap_or(0),
        );
        let expected = if answers.contains_key(&204) {
            (RACERS - 1, 0)
        } else {
            (0, RACERS - 1)
        };
        assert_eq!((missing, stale), expected, "round {round}: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_creates_of_one_id_exactly_one_wins() {
    check_creates(same_id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_creates_with_one_unique_value_exactly_one_wins() {
    check_creates(same_unique_value).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_writes_to_one_version_exactly_one_wins() {
    check_versions().await;
}

// On one thread the writer runs after every racer has put its command into the inbox: one commit group carries them all.

#[tokio::test]
async fn in_one_commit_group_one_create_of_an_id_wins() {
    check_creates(same_id).await;
}

#[tokio::test]
async fn in_one_commit_group_one_unique_value_wins() {
    check_creates(same_unique_value).await;
}

#[tokio::test]
async fn in_one_commit_group_one_write_to_a_version_wins() {
    check_versions().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_that_meet_happen_one_after_another() {
    let world = Arc::new(World::new().await);
    world.with_container("").await;
    let mut racers = JoinSet::new();
    for racer in 0..RACERS {
        let world = Arc::clone(&world);
        racers.spawn(async move {
            let mut n_won = 0;
            for round in 0..ROUNDS {
                let create = |id: String| ItemVerb::Create {
                    body: item(&format!(r#"{{"id":"{id}","pk":"p","racer":{racer}}}"#)),
                };
                // Both ids of a round are contended for; a batch gets both or neither.
                let mut steps = vec![create(format!("a{round}")), create(format!("b{round}"))];
                if racer.is_multiple_of(2) {
                    steps.reverse();
                }
                let statuses: Vec<u16> = world.batch("p", steps).await.iter().map(|step| step.status).collect();
                match statuses.as_slice() {
                    [201, 201] => n_won += 1,
                    [409, 424] | [424, 409] => {}
                    other => panic!("{other:?}"),
                }
            }
            n_won
        });
    }
    let mut n_won = 0;
    while let Some(won) = racers.join_next().await {
        n_won += won.unwrap();
    }
    assert_eq!(n_won, ROUNDS);
    for round in 0..ROUNDS {
        let racer = |body: orrery_model::json::Value| body.get("racer").unwrap().to_text();
        let a = racer(body_of(world.read("p", &format!("a{round}")).await.unwrap()));
        let b = racer(body_of(world.read("p", &format!("b{round}")).await.unwrap()));
        assert_eq!(
            a, b,
            "round {round}: the two halves of a batch come from different batches"
        );
    }
}
