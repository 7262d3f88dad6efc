//! Feeds and subscriptions of users who move, change their minds, and read in several places.

use orrery_publishing::database::Applied;
use orrery_publishing::entity::{Article, Notification};
use orrery_publishing::filter::Filter;
use orrery_publishing::stream::{HubEvent, Listener, NotificationHub};

use orrery_publishing::account::ReadAt;
use orrery_publishing::{ContentPublishDatabase, PublishError};
use serde_json::json;

use crate::world::{World, draft, fast, feed, titles, until, until_titles};

/// What a user is subscribed to, as a region sees it.
async fn subscribed(database: &ContentPublishDatabase, user: &str) -> Vec<String> {
    let (active, _) = database.list_subscriptions(user).await.unwrap();
    active.iter().map(|active| active.filter.to_string()).collect()
}

/// A notification of bob as an account has it.
fn notification_of_bob(account: &str, created_at: u64) -> Notification {
    let draft = draft("sports", "Snow");
    let article = Article::new("usa.article".into(), "usa", "ann", draft, 1_700_000_000_000).unwrap();
    let filters = vec![Filter::parse("sports").unwrap()];
    Notification::new("bob", &article, filters, None, account, created_at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_moves_keeps_old_subscriptions_and_never_sees_one_article_twice() {
    let world = World::new().await;
    let [usa, europe, asia] = world.databases();
    let _roles = world.start_roles();
    usa.create_subscription("mia", "sports").await.unwrap();
    // In Asia, Mia subscribes to the same again: now two accounts serve her.
    asia.create_subscription("mia", "sports").await.unwrap();
    asia.create_subscription("mia", "author:ann").await.unwrap();
    europe
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap();
    let held = async |database: &ContentPublishDatabase| {
        let id = orrery_publishing::ids::notification_id("mia", &feed(database, "mia").await.first()?.article_id);
        let read = ReadAt::WriteRegion;
        database.local().read::<Notification>("mia", &id, read).await.ok()
    };
    until("both accounts have notified", async || {
        held(&usa).await.is_some() && held(&asia).await.is_some()
    })
    .await;
    for database in [&usa, &europe, &asia] {
        until_titles(database, "mia", &["Snow"]).await;
    }
    let listed = async || {
        let (active, _) = asia.list_subscriptions("mia").await.unwrap();
        active
            .iter()
            .map(|active| active.filter.to_string())
            .collect::<Vec<_>>()
    };
    until("all subscriptions are listed", async || {
        listed().await == ["author:ann", "category:sports"]
    })
    .await;
    assert_eq!(
        asia.migrate_subscriptions("mia").await.unwrap(),
        [Filter::parse("sports").unwrap()]
    );
    assert_eq!(asia.migrate_subscriptions("mia").await.unwrap(), []);
    assert_eq!(listed().await, ["author:ann", "category:sports"]);
    europe
        .publish_article("bea", draft("sports", "Ice"), None)
        .await
        .unwrap();
    until_titles(&asia, "mia", &["Ice", "Snow"]).await;
    assert_eq!(feed(&asia, "mia").await[0].home_account, "asia");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_unsubscribes_anywhere_hears_no_more_and_can_come_back() {
    let world = World::new().await;
    let [usa, europe, _] = world.databases();
    let _roles = world.start_roles();
    usa.create_subscription("bob", "sports").await.unwrap();
    usa.create_subscription("eve", "sports").await.unwrap();
    usa.publish_article("ann", draft("sports", "One"), None).await.unwrap();
    until_titles(&usa, "bob", &["One"]).await;
    until_titles(&europe, "bob", &["One"]).await;
    // From another region than the one that holds the subscription.
    until("the subscription is seen abroad", async || {
        !europe.list_subscriptions("bob").await.unwrap().0.is_empty()
    })
    .await;
    europe.delete_subscription("bob", "sports").await.unwrap();
    assert!(europe.list_subscriptions("bob").await.unwrap().0.is_empty());
    usa.publish_article("ann", draft("sports", "Two"), None).await.unwrap();
    until_titles(&usa, "eve", &["Two", "One"]).await;
    // Whether or not fan-out still raised it, the reader does not see it.
    assert_eq!(titles(&feed(&europe, "bob").await), ["One"]);
    europe.create_subscription("bob", "sports").await.unwrap();
    usa.publish_article("ann", draft("sports", "Three"), None)
        .await
        .unwrap();
    until("bob is back", async || {
        titles(&feed(&europe, "bob").await).first() == Some(&"Three")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_is_marked_as_read_in_the_account_that_holds_it() {
    let world = World::new().await;
    let [usa, _, asia] = world.databases();
    let notification = notification_of_bob("asia", 1_700_000_000_001);
    asia.local().create(&notification).await.unwrap();
    until("it is seen abroad", async || !feed(&usa, "bob").await.is_empty()).await;
    let Applied::Now(at) = usa.mark_read("bob", &notification.id).await.unwrap() else {
        panic!("its account is there")
    };
    assert_eq!(usa.mark_read("bob", &notification.id).await.unwrap(), Applied::Now(at));
    assert_eq!(feed(&asia, "bob").await[0].read_at, Some(at));
    assert!(usa.mark_read("eve", &notification.id).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_has_not_heard_of_the_retraction_yet_is_not_shown() {
    let world = World::of_regions(1, 0).await;
    let [usa, _, asia] = world.databases();
    let copies = [notification_of_bob("usa", 7), notification_of_bob("asia", 9)];
    usa.local().create(&copies[0]).await.unwrap();
    asia.local().create(&copies[1]).await.unwrap();
    until("it is seen", async || !feed(&asia, "bob").await.is_empty()).await;
    let stored = usa
        .local()
        .read::<Notification>("bob", &copies[0].id, ReadAt::Near)
        .await
        .unwrap();
    let withdrawn = stored.value.withdrawn(11);
    usa.local().replace(&withdrawn, &stored.etag.unwrap()).await.unwrap();
    until("the withdrawal is heard of", async || {
        feed(&asia, "bob").await.is_empty()
    })
    .await;
}

/// Waits until the feeds of all accounts are read, each of which begins with saying that something may have been missed.
async fn until_heard(listener: &mut Listener) {
    for _ in 0..3 {
        assert_eq!(listener.next().await, Some(HubEvent::Missed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_hears_once_of_a_notification_that_several_accounts_have() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, asia] = world.databases();
    let hub = NotificationHub::start(&europe, fast().poll);
    let mut listener = hub.listen("bob");
    until_heard(&mut listener).await;
    let copies = [(&usa, "usa"), (&europe, "europe"), (&asia, "asia")];
    let mut expected = Vec::new();
    for (number, title) in ["Snow", "Ice"].into_iter().enumerate() {
        let article = Article::new(format!("usa.{number}"), "usa", "ann", draft("sports", title), 5).unwrap();
        let filters = vec![Filter::parse("sports").unwrap()];
        for (database, account) in copies {
            let copy = Notification::new("bob", &article, filters.clone(), None, account, 7);
            database.local().create(&copy).await.unwrap();
        }
        expected.push(title);
    }
    let last = notification_of_bob("usa", 9);
    until("every copy has come", async || feed(&europe, "bob").await.len() == 2).await;
    // The feed of each account is heard in its order, so these come after every copy.
    for (database, account) in copies {
        let copy = Notification {
            id: format!("last-{account}"),
            ..last.clone()
        };
        database.local().create(&copy).await.unwrap();
    }
    let (mut titles, mut n_last) = (Vec::new(), 0);
    while n_last < copies.len() {
        match listener.next().await {
            Some(HubEvent::New(heard)) if heard.id.starts_with("last-") => n_last += 1,
            Some(HubEvent::New(heard)) => titles.push(heard.title),
            other => panic!("{other:?}"),
        }
    }
    titles.sort_by_key(|title| expected.iter().position(|known| known == title));
    assert_eq!(titles, expected);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_hears_of_new_and_of_withdrawn_notifications() {
    let world = World::new().await;
    let [usa, _, asia] = world.databases();
    let _roles = world.start_roles();
    let hub = NotificationHub::start(&asia, fast().poll);
    let mut listener = hub.listen("aki");
    let mut other = hub.listen("zed");
    assert_eq!(hub.n_listeners(), 2);
    until_heard(&mut listener).await;
    asia.create_subscription("aki", "sports").await.unwrap();
    usa.publish_article("ann", draft("sports", "Snow"), None).await.unwrap();
    let heard = listener.next().await;
    let Some(HubEvent::New(notification)) = heard else {
        panic!("{heard:?}")
    };
    assert_eq!(
        (notification.user_id.as_str(), notification.title.as_str()),
        ("aki", "Snow")
    );
    usa.retract_article("ann", &notification.article_id, None)
        .await
        .unwrap();
    loop {
        match listener.next().await.unwrap() {
            HubEvent::Withdrawn { id } => break assert_eq!(id, notification.id),
            HubEvent::New(_) | HubEvent::Missed => {}
        }
    }
    drop(listener);
    assert_eq!(hub.n_listeners(), 1);
    hub.stop().await;
    drop(tokio::time::timeout(std::time::Duration::ZERO, other.next()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_subscriptions_loses_none_wherever_it_ends_halfway() {
    let world = World::of_regions(1, 0).await;
    let [usa, _, asia] = world.databases();
    usa.create_subscription("mia", "sports").await.unwrap();
    until("it is seen abroad", async || !subscribed(&asia, "mia").await.is_empty()).await;
    let refuse = |operation: &str| json!({"operation": operation, "container": "contentCollection", "status": 400});
    // The own account does not take it.
    world.servers[2].add_fault(&refuse("create_item"));
    let failed = asia.migrate_subscriptions("mia").await;
    assert!(matches!(failed, Err(PublishError::Refused(_))), "{failed:?}");
    world.servers[2].clear_faults();
    assert_eq!(subscribed(&usa, "mia").await, ["category:sports"]);
    // The account that had it does not give it up.
    world.servers[0].add_fault(&refuse("replace_item"));
    let moved = asia.migrate_subscriptions("mia").await.unwrap();
    assert_eq!(moved, [Filter::parse("sports").unwrap()]);
    world.servers[0].clear_faults();
    let waiting = asia.outbox_state().await.unwrap();
    let usas = waiting.iter().find(|state| state.target == "usa").unwrap();
    assert_eq!(usas.waiting, 1);
    assert!(asia.drain_outbox().await.unwrap().is_empty);
    assert_eq!(asia.migrate_subscriptions("mia").await.unwrap(), []);
    assert_eq!(subscribed(&asia, "mia").await, ["category:sports"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_that_arrives_late_does_not_undo_a_newer_subscription() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, _] = world.databases();
    let first = usa.create_subscription("bob", "sports").await.unwrap();
    let refuse = json!({"operation": "replace_item", "container": "contentCollection", "status": 400});
    world.servers[0].add_fault(&refuse);
    assert_eq!(
        europe.delete_subscription("bob", "sports").await.unwrap().queued,
        ["usa"]
    );
    world.servers[0].clear_faults();
    let again = usa.create_subscription("bob", "sports").await.unwrap();
    assert!(again.since > first.since, "{again:?} after {first:?}");
    assert_eq!(europe.drain_outbox().await.unwrap().n_done, 1);
    for database in [&usa, &europe] {
        until("the newer state wins", async || {
            subscribed(database, "bob").await == ["category:sports"]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_is_marked_as_read_where_it_was_written_if_the_reader_s_region_lacks_it() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, asia] = world.databases();
    world.servers[2].cut("Southeast Asia", true);
    let notification = notification_of_bob("asia", 1_700_000_000_001);
    asia.local().create(&notification).await.unwrap();
    let marked = usa.mark_read("bob", &notification.id).await.unwrap();
    assert!(matches!(marked, Applied::Now(_)), "{marked:?}");
    assert!(feed(&asia, "bob").await[0].read_at.is_some());

    // A copy whose account is silent hears of it later.
    let copy = notification_of_bob("usa", 1_700_000_000_002);
    usa.local().create(&copy).await.unwrap();
    world.servers[0].freeze();
    let marked = europe.mark_read("bob", &notification.id).await.unwrap();
    assert!(matches!(marked, Applied::Now(_)), "{marked:?}");
    world.servers[0].thaw();
    until("what waited is applied", async || {
        europe.drain_outbox().await.unwrap();
        let copy = usa.local().read::<Notification>("bob", &copy.id, ReadAt::WriteRegion);
        copy.await.is_ok_and(|copy| copy.value.read_at.is_some())
    })
    .await;
}
