//! Fan-out: everybody once, whatever is repeated, cut short, poisoned or large.

use azure_data_cosmos::models::TransactionalBatch;
use futures::StreamExt as _;
use orrery_publishing::ContentPublishDatabase;
use orrery_publishing::account::{ReadAt, Scope};
use orrery_publishing::entity::{Article, Entity as _, Notification, Subscription};
use orrery_publishing::fanout::{Fanout, FanoutSettings};
use orrery_publishing::filter::Filter;
use serde_json::json;

use crate::world::{World, draft, fast, feed, titles, until, until_titles};

/// Subscribers, written a hundred at a time: they share a partition key.
async fn subscribe_many(database: &ContentPublishDatabase, filter: &str, n_users: usize) {
    let (filter, account) = (Filter::parse(filter).unwrap(), database.local());
    let container = &account.connected().await.unwrap().content;
    let users: Vec<String> = (0..n_users).map(|number| format!("user {number:06}")).collect();
    let batches = users.chunks(100).map(|users| {
        let mut batch = TransactionalBatch::new(filter.to_string());
        for user in users {
            let subscription = Subscription::new(user, filter.clone(), 0, account.tag(), 1);
            batch = batch.create_item(subscription.document()).unwrap();
        }
        async move { container.execute_transactional_batch(batch, None).await.unwrap() }
    });
    let written: Vec<_> = futures::stream::iter(batches).buffer_unordered(8).collect().await;
    assert_eq!(written.len(), n_users.div_ceil(100));
}

async fn count_notifications(database: &ContentPublishDatabase, article: &str) -> u64 {
    let text = "SELECT VALUE 1 FROM c WHERE c.Type = @type AND c.ArticleId = @article";
    let parameters = [("@type", Notification::TYPE.into()), ("@article", article.into())];
    let counts = database
        .local()
        .query::<u64>(text, &parameters, Scope::Everything)
        .await;
    counts.map_or(0, |seen| seen.value.len() as u64)
}

/// A time at which an article is news.
fn article_now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}

fn small_steps() -> FanoutSettings {
    FanoutSettings {
        page: 50,
        in_flight: 20,
        save_every: 50,
        spread_above: 300,
        buckets: 4,
        ..fast()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_audience_is_served_page_by_page_and_goes_on_after_the_role_was_ended() {
    let n_users = if std::env::var_os("ORRERY_SOAK").is_some() {
        100_000
    } else {
        // So many that a quick machine is not done before the role is told to stop.
        4_000
    };
    let world = World::with(2, 0).await;
    let [usa, ..] = world.databases();
    subscribe_many(&usa, "sports", n_users).await;
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    let role = Fanout::new(&usa, small_steps()).start();
    until("some are served", async || {
        count_notifications(&usa, &article.id).await > 100
    })
    .await;
    role.stop().await;
    let n_served = count_notifications(&usa, &article.id).await;
    assert!(n_served < n_users as u64, "it was cut short: {n_served}");

    let role = Fanout::new(&usa, small_steps()).start();
    // Progress can be large; what counts is that it is made.
    let mut n_before = n_served;
    while n_before < n_users as u64 {
        until("more are served", async || {
            count_notifications(&usa, &article.id).await > n_before
        })
        .await;
        n_before = count_notifications(&usa, &article.id).await;
    }
    assert_eq!(n_before, n_users as u64);
    until("nothing waits", async || role.states().await[0].waiting == Some(0)).await;
    // The filter has become large: who comes now goes to a bucket, and is found there.
    usa.spread_filter(&Filter::parse("sports").unwrap(), 4).await.unwrap();
    usa.create_subscription("late", "sports").await.unwrap();
    let key = Filter::parse("sports").unwrap().partition_key("late", 4);
    let id = orrery_publishing::ids::subscription_id("late", "category:sports");
    let stored = usa.local().read::<Subscription>(&key, &id, ReadAt::Near).await.unwrap();
    assert_eq!(stored.value.buckets, 4);
    let second = usa
        .publish_article("ann", draft("sports", "Ice"), None)
        .await
        .unwrap()
        .article;
    until_titles(&usa, "late", &["Ice"]).await;
    assert!(count_notifications(&usa, &second.id).await >= 1);
    usa.delete_subscription("late", "sports").await.unwrap();
    let stored = usa.local().read::<Subscription>(&key, &id, ReadAt::Near).await.unwrap();
    assert_eq!(
        stored.value.state,
        orrery_publishing::entity::SubscriptionState::Cancelled
    );
    role.stop().await;
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
