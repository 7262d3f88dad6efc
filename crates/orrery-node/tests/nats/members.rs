//! Nodes of a cluster in one process: who follows, who takes over, and who may answer what.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{Epoch, IndexingDirective, LogId, PartitionKey, SessionToken};
use orrery_nats_server::{Server, Settings};
use orrery_node::api::{
    Consistency, ItemOperation, ItemSelector, ItemVerb, MetadataVerb, Operation, Options, Principal, ResourceKind,
};
use orrery_node::{ManualClock, Node, Request};
use orrery_storage::NatsStore;
use orrery_storage::nats::Following;

use crate::support::{World, body_of, code, container, item, named, settings};
use crate::{STOP, open_store, start_of_time};

struct Member {
    world: World,
    store: Arc<NatsStore>,
    _following: Following,
}

impl Member {
    async fn open(server: &Server, dir: &Path) -> Member {
        let store = open_store(server, dir).await;
        let following = store.follow();
        let clock = Arc::new(ManualClock::at(start_of_time()));
        if !Node::is_founded(&*store).await.unwrap() {
            Node::found(settings(), store.clone(), clock.clone()).await.unwrap();
        }
        let node = Node::follow(settings(), store.clone(), clock.clone()).await.unwrap();
        Member {
            world: World {
                node,
                clock,
                store: store.clone(),
            },
            store,
            _following: following,
        }
    }

    /// Coordinates, and owns every log.
    async fn take_over(&self) {
        self.store.refresh().await.unwrap();
        self.world.node.lead(&BTreeSet::new(), Epoch(1)).await.unwrap();
    }

    async fn step_down(&self) {
        let node = &self.world.node;
        node.cease(&node.owned_logs());
        node.cease_to_lead().await.unwrap();
        node.follow_ceased().await.unwrap();
    }

    /// May this follower answer a read of the item itself?
    fn may_answer(&self, consistency: Option<Consistency>, session: Option<&SessionToken>) -> bool {
        self.world.node.grounds(&read("i", consistency, session)).is_some()
    }

    /// Is only the system log left?
    fn store_knows_few(&self) -> bool {
        self.world.store.list().unwrap().len() == 1
    }
}

fn read(id: &str, consistency: Option<Consistency>, session: Option<&SessionToken>) -> Request {
    Request {
        principal: Principal::Account { read_only: false },
        options: Options {
            consistency,
            session: session.cloned(),
            ..Options::default()
        },
        operation: Operation::Item(ItemOperation {
            container: container(),
            partition_key: Some(PartitionKey::parse(r#"["k"]"#).unwrap()),
            precondition: orrery_model::etag::Precondition::None,
            directive: IndexingDirective::Default,
            verb: ItemVerb::Read {
                item: ItemSelector::Id(id.into()),
            },
        }),
    }
}

async fn eventually(mut condition: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("it comes true in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_learns_what_exists_and_answers_what_its_view_has_reached() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let owner = Member::open(&server, dirs[0].path()).await;
    let follower = Member::open(&server, dirs[1].path()).await;
    owner.take_over().await;
    owner.world.with_container("").await;
    let created = owner.world.create("k", r#"{"id":"i","pk":"k"}"#).await.unwrap();
    let token = created.facts.partition.unwrap().session();
    eventually(async || follower.may_answer(None, Some(&token))).await;
    let answer = follower.world.node.execute(read("i", None, Some(&token))).await;
    assert_eq!(code(answer), 200);
    assert!(follower.may_answer(Some(Consistency::Eventual), None));
    // A session it knows nothing of, and levels that only the owner can keep.
    assert!(!follower.may_answer(None, None));
    assert!(!follower.may_answer(Some(Consistency::BoundedStaleness), Some(&token)));
    assert!(!follower.may_answer(Some(Consistency::Strong), Some(&token)));
    // What the client has seen and the follower has not.
    follower.world.store.close().await.unwrap();
    let later = owner.world.create("k", r#"{"id":"j","pk":"k"}"#).await.unwrap();
    assert!(!follower.may_answer(None, Some(&later.facts.partition.unwrap().session())));
    assert!(owner.may_answer(Some(Consistency::Eventual), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_does_not_stand_when_its_container_is_deleted_meanwhile() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let owner = Member::open(&server, dirs[0].path()).await;
    let follower = Member::open(&server, dirs[1].path()).await;
    owner.take_over().await;
    owner.world.with_container("").await;
    assert_eq!(code(owner.world.create("k", r#"{"id":"i","pk":"k"}"#).await), 201);
    let request = read("i", Some(Consistency::Eventual), None);
    eventually(async || follower.world.node.grounds(&request).is_some()).await;
    let node = &follower.world.node;
    assert!(node.still_stands(node.grounds(&request).unwrap()).await);
    let grounds = node.grounds(&request).unwrap();
    owner.world.node.reset().await.unwrap();
    eventually(async || node.grounds(&request).is_none()).await;
    // The log goes after the catalogue has let go of it.
    eventually(async || follower.store_knows_few()).await;
    assert!(!node.still_stands(grounds).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_take_over_from_each_other_and_a_replaced_one_answers_no_strong_read() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let former = Member::open(&server, dirs[0].path()).await;
    let latter = Member::open(&server, dirs[1].path()).await;
    former.take_over().await;
    former.world.with_container("").await;
    assert_eq!(code(former.world.create("k", r#"{"id":"i","pk":"k"}"#).await), 201);
    let strong = || read("i", Some(Consistency::Strong), None);
    assert_eq!(code(former.world.node.execute(strong()).await), 200);
    latter.take_over().await;
    assert_eq!(code(latter.world.node.execute(strong()).await), 200);
    assert!(code(former.world.node.execute(strong()).await) >= 400);
    assert!(!former.world.node.proves_ownership().await);
    assert!(latter.world.node.proves_ownership().await);
    assert_eq!(code(former.world.create("k", r#"{"id":"j","pk":"k"}"#).await), 403);
    // And back.
    former.step_down().await;
    assert_eq!(code(latter.world.create("k", r#"{"id":"j","pk":"k"}"#).await), 201);
    former.take_over().await;
    assert_eq!(code(former.world.read("k", "j").await), 200);
    assert_eq!(code(former.world.create("k", r#"{"id":"l","pk":"k"}"#).await), 201);
    former.world.node.stop(STOP).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_know_yet_that_it_was_replaced_shows_what_has_come_from_the_next_owner() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let former = Member::open(&server, dirs[0].path()).await;
    let latter = Member::open(&server, dirs[1].path()).await;
    former.take_over().await;
    former.world.with_container("").await;
    // In the memory of the one that owns it.
    assert_eq!(
        code(former.world.create("k", r#"{"id":"i","pk":"k","n":1}"#).await),
        201
    );
    assert_eq!(code(former.world.read("k", "i").await), 200);
    latter.take_over().await;
    let upsert = ItemVerb::Upsert {
        body: item(r#"{"id":"i","pk":"k","n":2}"#),
    };
    let changed = latter.world.item("k", upsert).await.unwrap();
    let token = changed.facts.partition.unwrap().session();
    eventually(async || former.may_answer(None, Some(&token))).await;
    let shown = former.world.node.execute(read("i", None, Some(&token))).await.unwrap();
    assert_eq!(body_of(shown).get("n").unwrap().to_text(), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_goes_from_one_node_to_another_while_the_others_stay() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = Member::open(&server, dirs[0].path()).await;
    let second = Member::open(&server, dirs[1].path()).await;
    first.take_over().await;
    first.world.with_container("").await;
    for n in 0..20 {
        let body = format!(r#"{{"id":"i{n}","pk":"k{n}"}}"#);
        assert_eq!(code(first.world.create(&format!("k{n}"), &body).await), 201);
    }
    first.world.node.split("db", "c", 0).await.unwrap();
    let logs: Vec<LogId> = first.world.node.owned_logs().into_iter().collect();
    let [stays, goes] = *logs.as_slice() else {
        panic!("a partition was split in two: {logs:?}")
    };
    eventually(async || {
        second.world.node.serving_logs().len() == 2 && second.world.node.heads(&[goes].into()).is_some()
    })
    .await;
    first.world.node.disown(&[goes].into()).await.unwrap();
    second.world.node.own(&[goes].into()).await.unwrap();
    assert_eq!(first.world.node.owned_logs(), BTreeSet::from([stays]));
    assert_eq!(second.world.node.owned_logs(), BTreeSet::from([goes]));
    // Each key is written where its log is, and nowhere else.
    let (mut n_first, mut n_second) = (0, 0);
    for n in 0..20 {
        let (key, body) = (format!("k{n}"), format!(r#"{{"id":"j{n}","pk":"k{n}"}}"#));
        let answers = (
            code(first.world.create(&key, &body).await),
            code(second.world.create(&key, &body).await),
        );
        match answers {
            (201, 403) => n_first += 1,
            (403, 201) => n_second += 1,
            other => panic!("{key}: {other:?}"),
        }
    }
    assert!(n_first > 0 && n_second > 0, "{n_first} and {n_second}");
    // And back, with everything that was written meanwhile.
    second.world.node.disown(&[goes].into()).await.unwrap();
    first.world.node.own(&[goes].into()).await.unwrap();
    for n in 0..20 {
        assert_eq!(
            code(first.world.read(&format!("k{n}"), &format!("j{n}")).await),
            200,
            "item {n}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_does_not_coordinate_learns_new_definitions_from_the_system_log() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = Member::open(&server, dirs[0].path()).await;
    let second = Member::open(&server, dirs[1].path()).await;
    first.take_over().await;
    first.world.with_container("").await;
    let logs = first.world.node.owned_logs();
    eventually(async || second.world.node.heads(&logs).is_some()).await;
    first.world.node.disown(&logs).await.unwrap();
    second.world.node.own(&logs).await.unwrap();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":1000}"#;
    let replace = MetadataVerb::Replace {
        target: named("c"),
        body: orrery_model::json::parse_value(body.as_bytes()).unwrap(),
        precondition: orrery_model::etag::Precondition::None,
        migration: orrery_model::offer::Migration::None,
    };
    let replaced = first
        .world
        .metadata(ResourceKind::Container, vec![named("db")], replace);
    assert_eq!(code(replaced.await), 200);
    let known = first.world.node.system_lsn();
    let learned = tokio::time::timeout(STOP, second.world.node.carries_out(known)).await;
    learned.expect("the owner learns it");
    let before = second.world.node.heads(&logs).unwrap();
    assert_eq!(code(second.world.create("k", r#"{"id":"i","pk":"k"}"#).await), 201);
    assert_eq!(second.world.node.heads(&logs).unwrap()[0].1, before[0].1.next());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_coordinator_that_creates_a_container_leaves_the_logs_of_the_next_one_alone() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let former = Member::open(&server, dirs[0].path()).await;
    let latter = Member::open(&server, dirs[1].path()).await;
    former.take_over().await;
    former.world.create_database("db").await;
    // The former knows nothing of this, and would give the same numbers.
    latter.take_over().await;
    assert_eq!(code(latter.world.create_container("c", "").await), 201);
    assert_eq!(code(latter.world.create("k", r#"{"id":"i","pk":"k"}"#).await), 201);
    let refused = code(former.world.create_container("d", "").await);
    assert!(refused >= 400, "{refused}");
    // Nobody has claimed the log meanwhile, let alone dropped it.
    assert_eq!(code(latter.world.create("k", r#"{"id":"j","pk":"k"}"#).await), 201);
    assert_eq!(code(latter.world.read("k", "i").await), 200);
    latter.world.node.stop(STOP).await.unwrap();
}
