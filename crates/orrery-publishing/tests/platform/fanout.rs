//! Fan-out: everybody once, whatever is repeated or poisoned.

use orrery_publishing::entity::{Article, Entity as _};
use orrery_publishing::fanout::{Fanout, FanoutSettings};
use serde_json::json;

use crate::world::{World, draft, fast, feed, titles, until, until_titles};

/// A time at which an article is news.
fn article_now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_and_a_replay_of_everything_notify_once() {
    let world = World::with(1, 0).await;
    let [usa, ..] = world.databases();
    let named = |name: &str| FanoutSettings {
        instance: orrery_processor::InstanceName::new(name).unwrap(),
        ..fast()
    };
    let one = Fanout::new(&usa, named("one")).start();
    let two = Fanout::new(&usa, named("two")).start();
    for user in ["bob", "eve"] {
        usa.create_subscription(user, "sports").await.unwrap();
        usa.create_subscription(user, "tag:news").await.unwrap();
    }
    for title in ["One", "Two"] {
        usa.publish_article("ann", draft("sports", title), None).await.unwrap();
    }
    until_titles(&usa, "bob", &["Two", "One"]).await;
    let first = feed(&usa, "bob").await;
    one.stop().await;
    two.stop().await;
    // Without its leases the role begins from the beginning, and without its memory it takes every article for new.
    let database = usa
        .local()
        .connected()
        .await
        .unwrap()
        .client
        .database_client("publishing");
    let leases = database.container_client("coordination", None).await.unwrap();
    leases.delete(None).await.unwrap();
    usa.prepare().await.unwrap();
    let [again, ..] = world.databases();
    let role = Fanout::new(&again, named("three")).start();
    until("the role has read everything again", async || {
        role.states().await.iter().all(|state| state.waiting == Some(0))
    })
    .await;
    assert_eq!(feed(&again, "bob").await, first);
    until_titles(&again, "eve", &["Two", "One"]).await;
    role.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_does_not_notify_again_and_a_late_subscriber_is_not_told_of_old_articles() {
    let world = World::with(1, 0).await;
    let [usa, ..] = world.databases();
    let role = Fanout::new(&usa, fast()).start();
    usa.create_subscription("bob", "sports").await.unwrap();
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    until_titles(&usa, "bob", &["Snow"]).await;
    let first = feed(&usa, "bob").await;
    usa.create_subscription("late", "sports").await.unwrap();
    let etag = article.etag.unwrap();
    usa.update_article("ann", &article.id, draft("sports", "Snow, edited"), &etag)
        .await
        .unwrap();
    usa.publish_article("ann", draft("sports", "Ice"), None).await.unwrap();
    until_titles(&usa, "late", &["Ice"]).await;
    until_titles(&usa, "bob", &["Ice", "Snow"]).await;
    assert_eq!(feed(&usa, "bob").await[1], first[0]);
    role.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_nobody_can_read_becomes_a_dead_letter_and_holds_up_nothing() {
    let world = World::with(1, 0).await;
    let [usa, ..] = world.databases();
    usa.create_subscription("bob", "sports").await.unwrap();
    let container = &usa.local().connected().await.unwrap().content;
    let broken = json!({"id": "broken", "PartitionKey": "broken", "Type": "Article", "Title": 7});
    container.create_item("broken", "broken", &broken, None).await.unwrap();
    let foreign = json!({"id": "foreign", "PartitionKey": "foreign", "SubscriptionFilter": "sports", "UserId": "old"});
    container
        .create_item("foreign", "foreign", &foreign, None)
        .await
        .unwrap();
    usa.publish_article("ann", draft("sports", "Snow"), None).await.unwrap();
    let role = Fanout::new(&usa, fast()).start();
    until_titles(&usa, "bob", &["Snow"]).await;
    until("the letter is there", async || role.states().await[0].dead_letters == 1).await;
    // Repaired, it is handled like any other once its letter is.
    let now = article_now();
    let repaired = Article::new("broken".into(), "usa", "ann", draft("sports", "Repaired"), now).unwrap();
    container
        .upsert_item("broken", "broken", repaired.document(), None)
        .await
        .unwrap();
    until("no letter is left", async || {
        role.role().replay_dead_letters().await.unwrap();
        role.states().await[0].dead_letters == 0 && titles(&feed(&usa, "bob").await).contains(&"Repaired")
    })
    .await;
    role.stop().await;
}
