//! The totals of reviews that an account's change feed keeps: right after edits, replays and two hosts, and used for articles
//! with many reviews.

use azure_data_cosmos::models::TransactionalBatch;
use orrery_publishing::ContentPublishDatabase;
use orrery_publishing::account::ReadAt;
use orrery_publishing::entity::{Entity as _, Review, ReviewTotals};
use orrery_publishing::fanout::{Fanout, FanoutSettings};
use serde_json::json;

use crate::world::{World, fast, until};

async fn kept(database: &ContentPublishDatabase, article: &str) -> Option<serde_json::Value> {
    let totals = database
        .local()
        .read::<ReviewTotals>(article, ReviewTotals::ID, ReadAt::Near)
        .await;
    totals.ok().map(|seen| json!(seen.value.counts))
}

async fn until_kept(database: &ContentPublishDatabase, article: &str, expected: [u64; 5]) {
    until(&format!("the totals are {expected:?}"), async || {
        kept(database, article).await == Some(json!(expected))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_account_keeps_the_totals_of_its_own_reviews_through_edits_two_hosts_and_a_replay() {
    let world = World::with(1, 0).await;
    let [usa, europe, _] = world.databases();
    let named = |name: &str| FanoutSettings {
        instance: orrery_processor::InstanceName::new(name).unwrap(),
        ..fast()
    };
    let hosts = ["one", "two"].map(|name| Fanout::new(&usa, named(name)).start());
    let theirs = Fanout::new(&europe, fast()).start();
    let article = "usa.article";
    for (user, rating) in [("bob", 5), ("eve", 4), ("kim", 4)] {
        usa.write_review(article, user, "Fine.", rating).await.unwrap();
    }
    europe.write_review(article, "bob", "From afar.", 1).await.unwrap();
    until_kept(&usa, article, [0, 0, 0, 2, 1]).await;
    until_kept(&europe, article, [1, 0, 0, 0, 0]).await;
    // Quick changes of mind: only the last one counts.
    for rating in [1, 2, 3] {
        usa.write_review(article, "eve", "Or not.", rating).await.unwrap();
    }
    until_kept(&usa, article, [0, 0, 1, 1, 1]).await;
    for host in hosts {
        host.stop().await;
    }
    theirs.stop().await;

    // Without its leases the role reads everything again, and counts nothing twice.
    let client = &usa.local().connected().await.unwrap().client;
    let database = client.database_client("publishing");
    let leases = database.container_client("coordination", None).await.unwrap();
    leases.delete(None).await.unwrap();
    usa.prepare().await.unwrap();
    let role = Fanout::new(&world.database("West US"), named("three")).start();
    until("the role has read everything again", async || {
        role.states().await[0].waiting == Some(0)
    })
    .await;
    assert_eq!(kept(&usa, article).await, Some(json!([0, 0, 1, 1, 1])));
    role.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_article_with_many_reviews_is_summed_up_without_counting_them() {
    let world = World::with(1, 0).await;
    let [usa, europe, _] = world.databases();
    let article = "usa.popular";
    let container = &usa.local().connected().await.unwrap().content;
    for hundred in 0..12 {
        let mut batch = TransactionalBatch::new(article);
        for number in 0..100 {
            let user = format!("user {hundred} {number}");
            let review = Review::new(article, &user, "usa", "", 1 + (number % 2) * 4, 1).unwrap();
            batch = batch.create_item(review.document()).unwrap();
        }
        container.execute_transactional_batch(batch, None).await.unwrap();
    }
    let counted = usa.read_article_summary(article).await.unwrap().rating;
    assert_eq!(counted.histogram, [600, 0, 0, 0, 600]);
    let n_batches = || world.servers[0].n_requests("batch");
    let n_before = n_batches();
    let role = Fanout::new(&usa, fast()).start();
    until_kept(&usa, article, [600, 0, 0, 0, 600]).await;
    role.stop().await;
    let n_written = n_batches() - n_before;
    assert!(n_written < 300, "{n_written} batches: reviews are not counted together");
    let n_before = world.servers[0].n_requests("query_items");
    let summed = usa.read_article_summary(article).await.unwrap().rating;
    assert_eq!((summed.histogram, summed.average), ([600, 0, 0, 0, 600], Some(3.0)));
    assert_eq!(
        world.servers[0].n_requests("query_items"),
        n_before,
        "nothing was counted"
    );
    // Others read the same totals in their own region.
    until("they have arrived", async || {
        europe.read_article_summary(article).await.unwrap().rating.count == 1200
    })
    .await;
}
