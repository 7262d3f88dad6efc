//! Nodes of a cluster in one process: who follows, who takes over, and who may answer what.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{PartitionKey, SessionToken};
use orrery_nats_server::{Server, Settings};
use orrery_node::api::{Consistency, ItemOperation, ItemSelector, ItemVerb, Operation, Options, Principal};
use orrery_node::{ManualClock, Node, Request};
use orrery_storage::NatsStore;
use orrery_storage::nats::Following;

use crate::support::{World, code, container, settings};
use crate::{STOP, open_store, start_of_time};

struct Member {
    world: World,
    store: Arc<NatsStore>,
    following: Option<Following>,
}

impl Member {
    async fn open(server: &Server, dir: &Path) -> Member {
        let store = open_store(server, dir).await;
        let following = Some(store.follow());
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
            following,
        }
    }

    async fn take_over(&mut self) {
        self.following = None;
        self.store.refresh().await.unwrap();
        self.world.node.take_over().await.unwrap();
    }

    async fn step_down(&mut self) {
        self.world.node.step_down().await.unwrap();
        self.following = Some(self.store.follow());
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
    let mut owner = Member::open(&server, dirs[0].path()).await;
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
    assert!(
        !owner.may_answer(Some(Consistency::Eventual), None),
        "an owner has no need to ask"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_does_not_stand_when_its_container_is_deleted_meanwhile() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut owner = Member::open(&server, dirs[0].path()).await;
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
    let mut former = Member::open(&server, dirs[0].path()).await;
    let mut latter = Member::open(&server, dirs[1].path()).await;
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
    assert_eq!(code(former.world.create("k", r#"{"id":"j","pk":"k"}"#).await), 410);
    // And back.
    former.step_down().await;
    assert_eq!(code(latter.world.create("k", r#"{"id":"j","pk":"k"}"#).await), 201);
    former.take_over().await;
    assert_eq!(code(former.world.read("k", "j").await), 200);
    assert_eq!(code(former.world.create("k", r#"{"id":"l","pk":"k"}"#).await), 201);
    former.world.node.stop(STOP).await.unwrap();
}
