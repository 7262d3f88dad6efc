//! Accounts that cannot be reached: writes stay possible at home, and what must reach them waits and arrives.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use orrery_publishing::database::{Applied, Intent, Message, PageRequest};
use orrery_publishing::error::Cause;
use orrery_publishing::fanout::Fanout;
use orrery_publishing::outage::{FailOver, OutagePolicy};
use orrery_publishing::topology::AccountEntry;
use orrery_publishing::{AccountSettings, PublishError};
use serde_json::json;

use crate::admin::administer;
use crate::world::{World, draft, fast, feed, titles, until, until_titles};

/// Fails an account over through the administration of its server.
#[derive(Debug)]
struct Administrator {
    port: u16,
}

impl FailOver for Administrator {
    fn fail_over<'a>(&'a self, account: &'a AccountEntry, to: &'a str) -> BoxFuture<'a, Result<(), Cause>> {
        assert_eq!(account.tag, "asia");
        Box::pin(async move {
            administer(self.port, "POST", "/_orrery/v1/failover", &json!({"region": to}));
            Ok(())
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_whose_region_is_gone_is_failed_over_if_that_is_the_policy_and_what_waited_is_applied() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, asia] = world.databases();
    let article = asia
        .publish_article("ann", draft("sports", "Before"), None)
        .await
        .unwrap()
        .article;
    let etag = article.etag.clone().unwrap();
    until("it is everywhere", async || {
        europe.read_article(&article.id, None).await.is_ok() && usa.read_article(&article.id, None).await.is_ok()
    })
    .await;
    let settings = AccountSettings {
        outage: OutagePolicy::FailOver {
            after: Duration::from_secs(1),
            through: Arc::new(Administrator {
                port: world.servers[2].region_ports[1],
            }),
        },
        ..europe.local().settings().clone()
    };
    let eager = world.database_with("North Europe", &settings);
    let role = Fanout::new(&eager, fast()).start();
    for server in &world.servers {
        server.administer(
            "POST",
            "/_orrery/v1/regions/Southeast%20Asia/stop",
            &json!({"mode": "unavailable"}),
        );
    }
    let queued = europe
        .update_article("ann", &article.id, draft("sports", "Edited"), &etag)
        .await
        .unwrap();
    assert_eq!(queued, Applied::Queued);
    until("the change is applied in another region", async || {
        let fresh = usa.read_article(&article.id, None).await;
        fresh.is_ok_and(|article| article.title == "Edited" && article.revision == 2)
    })
    .await;
    // Whoever owns something there can change it at once now.
    let edited = usa.read_article(&article.id, None).await.unwrap();
    let again = usa
        .update_article("ann", &article.id, draft("sports", "At once"), &edited.etag.unwrap())
        .await
        .unwrap();
    assert!(matches!(again, Applied::Now(article) if article.title == "At once"));
    role.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_an_account_is_gone_the_others_publish_review_and_notify_and_changes_for_it_wait() {
    let world = World::with(1, 0).await;
    let [usa, europe, asia] = world.databases();
    let roles = world.start_roles();
    usa.create_subscription("uma", "sports").await.unwrap();
    asia.create_subscription("uma", "art").await.unwrap();
    let article = asia
        .publish_article("ann", draft("sports", "Before"), None)
        .await
        .unwrap()
        .article;
    until_titles(&usa, "uma", &["Before"]).await;
    let etag = article.etag.clone().unwrap();

    world.servers[2].freeze();
    // Its author moves to Europe and goes on writing there.
    europe
        .publish_article("ann", draft("sports", "During"), None)
        .await
        .unwrap();
    europe.write_review(&article.id, "eva", "Fine.", 5).await.unwrap();
    until("the others are served", async || {
        titles(&feed(&usa, "uma").await).contains(&"During")
    })
    .await;
    let page = usa
        .read_notification_feed("uma", &PageRequest::default())
        .await
        .unwrap();
    assert!(page.missing.contains(&"asia".to_owned()));
    let refused = asia.publish_article("ann", draft("sports", "Lost"), None).await;
    assert!(matches!(refused, Err(PublishError::Unavailable(_))), "{refused:?}");
    let queued = europe
        .update_article("ann", &article.id, draft("sports", "Edited"), &etag)
        .await
        .unwrap();
    assert_eq!(queued, Applied::Queued);
    let stale = europe
        .update_article("ann", &article.id, draft("sports", "Too late"), "\"another\"")
        .await
        .unwrap();
    assert_eq!(stale, Applied::Queued);
    assert_eq!(usa.delete_subscription("uma", "art").await.unwrap().queued, ["asia"]);
    let waiting = europe.outbox_state().await.unwrap();
    let asias = waiting.iter().find(|state| state.target == "asia").unwrap();
    assert_eq!((asias.waiting, asias.alert), (2, false));

    world.servers[2].thaw();
    until("what waited is applied", async || {
        let fresh = usa.read_article(&article.id, None).await;
        fresh.is_ok_and(|article| article.title == "Edited" && article.revision == 2)
    })
    .await;
    until("what no longer fits is given up", async || {
        let state = europe.outbox_state().await.unwrap();
        let asias = state.iter().find(|state| state.target == "asia").unwrap();
        (asias.waiting, asias.failed) == (0, 1)
    })
    .await;
    asia.publish_article("ann", draft("art", "After"), None).await.unwrap();
    asia.publish_article("ann", draft("sports", "Last"), None)
        .await
        .unwrap();
    until("the feed is complete again", async || {
        let page = usa
            .read_notification_feed("uma", &PageRequest::default())
            .await
            .unwrap();
        page.missing.is_empty() && titles(&page.items) == ["Last", "During", "Before"]
    })
    .await;
    for role in roles {
        role.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_region_lacks_the_article_gets_it_from_where_it_was_written() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, _] = world.databases();
    world.servers[0].cut("West US", true);
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    assert_eq!(europe.read_article(&article.id, None).await.unwrap().title, "Snow");
    // With a token of the write region the same holds through the SDK itself.
    let seen = usa
        .local()
        .read::<serde_json::Value>(&article.id, &article.id, orrery_publishing::account::ReadAt::Near)
        .await
        .unwrap();
    let token = seen.session_token.unwrap();
    assert_eq!(
        europe.read_article(&article.id, Some(&token)).await.unwrap().title,
        "Snow"
    );
    // A stranger's token does no harm.
    assert_eq!(
        europe.read_article(&article.id, Some("nonsense")).await.unwrap().title,
        "Snow"
    );
    let future = "0:0#999999999";
    for database in [&usa, &europe] {
        let read = database.read_article(&article.id, Some(future)).await;
        assert_eq!(read.unwrap().title, "Snow");
    }
    usa.beat(Duration::from_secs(2)).await.unwrap();
    let known = europe.freshness().await;
    assert_eq!((known[0].account.as_str(), known[0].lag_ms), ("usa", None), "{known:?}");
    world.servers[0].cut("West US", false);
    until("the heartbeat arrives", async || {
        europe.freshness().await[0].lag_ms.is_some()
    })
    .await;
    world.servers[0].cut("West US", true);
    until("the lag grows while nothing arrives", async || {
        europe.freshness().await[0]
            .lag_ms
            .is_some_and(|lag| lag > Duration::from_secs(1).as_millis() as u64)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_answers_with_what_it_has_after_somebody_read_where_it_was_written() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, _] = world.databases();
    let publish = async |title: &str| {
        let published = usa.publish_article("ann", draft("sports", title), None).await;
        published.unwrap().article.id
    };
    let old = publish("Old").await;
    usa.write_review(&old, "bob", "Fine.", 4).await.unwrap();
    until("Europe has both", async || {
        let page = europe.read_reviews(&old, &PageRequest::default()).await.unwrap();
        europe.read_article(&old, None).await.is_ok() && page.items.len() == 1
    })
    .await;
    world.servers[0].cut("West US", true);
    // Articles that Europe lacks are read over the ocean, and so is one that nobody has.
    let new = publish("New").await;
    assert_eq!(europe.read_article(&new, None).await.unwrap().title, "New");
    let unknown = europe.read_article("usa.unknown", None).await;
    assert!(matches!(unknown, Err(PublishError::NotFound)), "{unknown:?}");
    let served = async || {
        let page = europe.read_reviews(&old, &PageRequest::default()).await.unwrap();
        let answer = page.accounts.iter().find(|answer| answer.account == "usa").unwrap();
        (page.items.len(), page.missing.clone(), answer.region.clone())
    };
    assert_eq!(served().await, (1, Vec::new(), Some("North Europe".to_owned())));

    world.servers[0].administer(
        "POST",
        "/_orrery/v1/regions/West%20US/stop",
        &json!({"mode": "unavailable"}),
    );
    assert_eq!(europe.read_article(&old, None).await.unwrap().title, "Old");
    assert_eq!(served().await, (1, Vec::new(), Some("North Europe".to_owned())));
    let unknown = europe.read_article(&new, None).await;
    assert!(
        matches!(&unknown, Err(PublishError::Unknown(accounts)) if accounts == &["usa"]),
        "{unknown:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_were_given_up_do_not_hide_what_waits() {
    let world = World::of_regions(1, 0).await;
    let [usa, ..] = world.databases();
    let message = |number: u64, failed: Option<&str>| Message {
        id: format!("message-{number}"),
        home_account: "usa".to_owned(),
        created_at: number,
        target: "asia".to_owned(),
        intent: Intent::Retract {
            article: "asia.article".to_owned(),
            editor: "ann".to_owned(),
            etag: None,
        },
        failed: failed.map(str::to_owned),
        ttl_s: None,
    };
    for number in 0..101 {
        usa.local().create(&message(number, Some("gone"))).await.unwrap();
    }
    usa.local().create(&message(101, None)).await.unwrap();
    let state = usa.outbox_state().await.unwrap();
    let asias = state.iter().find(|state| state.target == "asia").unwrap();
    assert_eq!((asias.waiting, asias.failed, asias.alert), (1, 101, true));
}
