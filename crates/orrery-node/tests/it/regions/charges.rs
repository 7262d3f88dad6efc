//! What reads cost at each level: those that are to show what others have written ask two copies in the service, and cost twice.

use orrery_model::{Charge, PartitionKey};
use orrery_node::api::{
    ChangeFeedRead, FeedMode, FeedStart, FeedTarget, FromHistory, ItemOperation, ItemSelector, Operation, Page,
    QueryDiagnostics, QueryText,
};

use super::*;
use crate::support::{container, settings};

/// Every way to read items.
fn reads() -> Vec<Operation> {
    let key = PartitionKey::parse(&format!("[{:?}]", document(0).0)).unwrap();
    let point = |id: &str| {
        Operation::Item(ItemOperation {
            container: container(),
            partition_key: Some(key.clone()),
            precondition: orrery_model::etag::Precondition::None,
            directive: IndexingDirective::Default,
            verb: ItemVerb::Read {
                item: ItemSelector::Id(id.to_owned()),
            },
        })
    };
    let query = |text: &str, target: FeedTarget| Operation::Query {
        container: container(),
        target,
        query: QueryText {
            text: text.to_owned(),
            parameters: Vec::new(),
            resume_filter: None,
        },
        page: Page::default(),
        cross_partition: true,
        diagnostics: QueryDiagnostics::default(),
    };
    let keyed = FeedTarget {
        partition_key: Some(key.clone()),
        ..FeedTarget::default()
    };
    vec![
        point("0"),
        point("nothing"),
        query("SELECT * FROM c WHERE c.pk != 'x'", FeedTarget::default()),
        query("SELECT * FROM c WHERE c.id = '0'", keyed),
        Operation::ReadFeed {
            container: container(),
            target: FeedTarget::default(),
            page: Page::default(),
        },
        Operation::ChangeFeed(ChangeFeedRead {
            container: container(),
            target: FeedTarget::default(),
            mode: FeedMode::LatestVersions,
            start: FeedStart::Beginning,
            newer_than: None,
            n_items_max: None,
            filter: None,
            wait_ms: 0,
            from_history: FromHistory::No,
            facts_only: false,
            committed_only: false,
            lasting_tag: false,
        }),
    ]
}

async fn charge_of(world: &World, operation: Operation, level: Option<Consistency>) -> Charge {
    let request = Request {
        principal: Principal::Account { read_only: false },
        options: Options {
            consistency: level,
            ..Options::default()
        },
        operation,
    };
    match world.node.execute(request).await {
        Ok(reply) => reply.facts.charge,
        Err(failure) => failure.facts.charge,
    }
}

#[tokio::test]
async fn a_read_that_shows_what_others_have_written_costs_twice_what_one_that_need_not_does() {
    for account in [Consistency::Session, Consistency::BoundedStaleness, Consistency::Strong] {
        let regions = Regions::with(account).await;
        regions.with_container().await;
        fill(&regions.writer(), 0..3).await;
        regions.all_equal().await;
        for world in [regions.writer(), regions.at(ASIA)] {
            for operation in reads() {
                let least = charge_of(&world, operation.clone(), Some(Consistency::Eventual)).await;
                assert!(least > Charge::ZERO);
                let usual = charge_of(&world, operation.clone(), None).await;
                let wanted = match account {
                    Consistency::Session => least,
                    _ => least.of_two_copies(),
                };
                assert_eq!(usual, wanted, "{account:?} {operation:?}");
            }
        }
    }
}

#[tokio::test]
async fn reads_of_an_account_of_one_region_cost_what_its_level_says() {
    for account in [Consistency::Session, Consistency::BoundedStaleness, Consistency::Strong] {
        let mut settings = settings();
        settings.account.consistency = account;
        let world = World::with(settings).await;
        world.with_container("").await;
        fill(&world, 0..3).await;
        for operation in reads() {
            let least = charge_of(&world, operation.clone(), Some(Consistency::Eventual)).await;
            let usual = charge_of(&world, operation.clone(), None).await;
            let wanted = match account {
                Consistency::Session => least,
                _ => least.of_two_copies(),
            };
            assert_eq!(usual, wanted, "{account:?} {operation:?}");
        }
    }
}
