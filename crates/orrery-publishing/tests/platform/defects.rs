//! What was wrong with the original, each shown to be wrong there and right here. A host that is not its account's is refused
//! by the account table; see `topology`.

use std::time::{Duration, Instant};

use orrery_publishing::database::{Applied, PageRequest};
use serde_json::json;

use crate::original::Original;
use crate::world::{LATENCY_MS, REGIONS, World, draft, feed, until, until_titles};

fn every() -> PageRequest {
    PageRequest {
        size: 100,
        ..PageRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_every_account_are_answered_by_the_readers_own_region() {
    let world = World::of_regions(1, LATENCY_MS).await;
    for database in world.databases() {
        database.beat(Duration::from_secs(2)).await.unwrap();
    }
    until("every region has heard of every other", async || {
        let known = world
            .databases()
            .map(|database| async move { database.freshness().await });
        let known = futures::future::join_all(known).await;
        known.iter().flatten().all(|account| account.lag_ms.is_some())
    })
    .await;
    for (database, region) in world.databases().iter().zip(REGIONS) {
        let page = database.read_reviews("usa.some-article", &every()).await.unwrap();
        let regions: Vec<_> = page
            .accounts
            .iter()
            .map(|account| account.region.clone().unwrap())
            .collect();
        assert_eq!(regions, [region; 3]);
    }
    // The original prefers the region of each account: its reads of the others cross the ocean.
    let [usa, ..] = world.databases();
    let original = Original::new(&usa).await;
    let n_outside = || {
        let counts = world
            .servers
            .iter()
            .map(|server| server.n_requests_outside("West US", &["query_items"]));
        counts.collect::<Vec<u64>>()
    };
    let before = n_outside();
    usa.read_reviews("usa.some-article", &every()).await.unwrap();
    assert_eq!(n_outside(), before);
    original.read_reviews("usa.some-article").await.unwrap();
    let after = n_outside();
    assert!(
        after[0] == before[0] && after[1] > before[1] && after[2] > before[2],
        "{before:?} {after:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_holds_its_own_kind_of_document_only() {
    let world = World::new().await;
    let [usa, ..] = world.databases();
    let _roles = world.start_roles();
    usa.create_subscription("bob", "sports").await.unwrap();
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    usa.write_review(&article.id, "bob", "Fine.", 4).await.unwrap();
    until_titles(&usa, "bob", &["Snow"]).await;
    let original = Original::new(&usa).await;
    let types = |items: &[serde_json::Value]| {
        let mut types: Vec<String> = items
            .iter()
            .map(|item| item["Type"].as_str().unwrap().to_owned())
            .collect();
        types.sort();
        types
    };
    let mixed = original.read_notification_feed("bob").await.unwrap();
    assert_eq!(
        types(&mixed),
        ["Notification", "Review", "Subscription", "SubscriptionListing"]
    );
    let mixed = types(&original.read_reviews(&article.id).await.unwrap());
    assert!(mixed.contains(&"Notification".to_owned()), "{mixed:?}");
    assert_eq!(feed(&usa, "bob").await.len(), 1);
    assert_eq!(usa.read_reviews(&article.id, &every()).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_one_query_of_one_partition_per_account() {
    let world = World::with(4, 0).await;
    let [usa, ..] = world.databases();
    let n_queries = || {
        world
            .servers
            .iter()
            .map(|server| server.n_requests("query_items"))
            .collect::<Vec<_>>()
    };
    let original = Original::new(&usa).await;
    let before = n_queries();
    usa.read_reviews("usa.some-article", &every()).await.unwrap();
    let ours = n_queries();
    original.read_reviews("usa.some-article").await.unwrap();
    let theirs = n_queries();
    for account in 0..3 {
        assert_eq!(ours[account] - before[account], 1);
        assert!(
            theirs[account] - ours[account] >= 4,
            "the original asks every partition"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_was_lost_and_that_is_tried_again_happened_once() {
    let world = World::new().await;
    let [usa, ..] = world.databases();
    let lose_one =
        json!({"operation": "create_item", "container": "contentCollection", "after": true, "status": 408, "count": 1});
    let server = &world.servers[0];
    // The caller of the original sees a failure and calls again.
    let original = Original::new(&usa).await;
    server.add_fault(&lose_one);
    let mut n_calls = 0;
    while original
        .write_review("usa.first", "bob", "Fine.", 4, n_calls)
        .await
        .is_err()
    {
        n_calls += 1;
    }
    assert!(n_calls > 0, "the first call was to fail");
    assert_eq!(original.read_reviews("usa.first").await.unwrap().len(), 2);

    server.add_fault(&lose_one);
    while usa.write_review("usa.second", "bob", "Fine.", 4).await.is_err() {}
    assert_eq!(usa.read_reviews("usa.second", &every()).await.unwrap().items.len(), 1);
    server.add_fault(&lose_one);
    let publish = async || {
        usa.publish_article("ann", draft("sports", "Snow"), Some("attempt 1"))
            .await
    };
    let one = loop {
        if let Ok(published) = publish().await {
            break published.article.id;
        }
    };
    assert_eq!(publish().await.unwrap().article.id, one);
    let other = usa
        .publish_article("ann", draft("sports", "Ice"), Some("attempt 1"))
        .await;
    assert!(
        matches!(other, Err(orrery_publishing::PublishError::Exists)),
        "{other:?}"
    );
    for _ in 0..2 {
        server.add_fault(&lose_one);
        while usa.create_subscription("bob", "sports").await.is_err() {}
    }
    server.clear_faults();
    assert_eq!(usa.list_subscriptions("bob").await.unwrap().0.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_account_that_does_not_answer_fails_the_original_and_only_shortens_ours() {
    let world = World::with(1, 0).await;
    let [usa, ..] = world.databases();
    let original = Original::new(&usa).await;
    for user in ["bob", "eve"] {
        usa.write_review("usa.article", user, "Fine.", 4).await.unwrap();
    }
    world.servers[2].freeze();
    let begun = Instant::now();
    let page = usa.read_reviews("usa.article", &every()).await.unwrap();
    assert_eq!((page.items.len(), page.missing), (2, vec!["asia".to_owned()]));
    assert!(page.continuation.is_some(), "the rest can be asked for");
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    // While it rests, nobody waits for it at all.
    let begun = Instant::now();
    usa.read_reviews("usa.article", &every()).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let complete = PageRequest {
        complete: true,
        ..every()
    };
    let refused = usa.read_reviews("usa.article", &complete).await;
    assert!(matches!(refused, Err(orrery_publishing::PublishError::Incomplete(accounts)) if accounts == ["asia"]));
    let theirs = tokio::time::timeout(Duration::from_secs(5), original.read_reviews("usa.article")).await;
    assert!(!matches!(theirs, Ok(Ok(_))), "the original waits for everybody");
    world.servers[2].thaw();
    until("the account takes part again", async || {
        usa.read_reviews("usa.article", &every())
            .await
            .unwrap()
            .missing
            .is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_comes_in_order_and_in_pages() {
    let world = World::with(1, 0).await;
    let databases = world.databases();
    let article = "usa.article";
    for number in 0..12 {
        let database = &databases[number % 3];
        database
            .write_review(article, &format!("user {number:02}"), "Fine.", 3)
            .await
            .unwrap();
        // Times are in milliseconds, and the order of two reviews of one millisecond is that of their ids.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let (mut users, mut continuation, mut sizes) = (Vec::new(), None, Vec::new());
    until("every region has everything", async || {
        databases[1].read_reviews(article, &every()).await.unwrap().items.len() == 12
    })
    .await;
    loop {
        let request = PageRequest {
            size: 5,
            continuation,
            complete: true,
        };
        let page = databases[1].read_reviews(article, &request).await.unwrap();
        sizes.push(page.items.len());
        users.extend(page.items.into_iter().map(|review| review.user_id));
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    let newest_first: Vec<String> = (0..12).rev().map(|number| format!("user {number:02}")).collect();
    assert_eq!((&users, sizes), (&newest_first, vec![5, 5, 2]));
    let original = Original::new(&databases[1]).await.read_reviews(article).await.unwrap();
    let theirs: Vec<String> = original
        .iter()
        .map(|item| item["UserId"].as_str().unwrap().to_owned())
        .collect();
    assert_ne!(theirs, newest_first, "the original has no order");
    for size in [0, 101] {
        let refused = databases[1]
            .read_reviews(
                article,
                &PageRequest {
                    size,
                    ..PageRequest::default()
                },
            )
            .await;
        assert!(matches!(refused, Err(orrery_publishing::PublishError::PageSize(100))));
    }
    let request = PageRequest {
        continuation: Some("nonsense".into()),
        ..PageRequest::default()
    };
    let refused = databases[1].read_reviews(article, &request).await;
    assert!(matches!(refused, Err(orrery_publishing::PublishError::Continuation(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_original_leaves_out_exists() {
    let world = World::new().await;
    let [usa, europe, _] = world.databases();
    let _roles = world.start_roles();
    europe.create_subscription("eva", "author:ann").await.unwrap();
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    until_titles(&europe, "eva", &["Snow"]).await;
    let etag = article.etag.unwrap();
    let Applied::Now(edited) = usa
        .update_article("ann", &article.id, draft("sports", "Ice"), &etag)
        .await
        .unwrap()
    else {
        panic!("the own account is there")
    };
    assert_eq!((edited.title.as_str(), edited.revision), ("Ice", 2));
    let item = &feed(&europe, "eva").await[0];
    assert!(matches!(
        europe.mark_read("eva", &item.id).await.unwrap(),
        Applied::Now(_)
    ));
    assert_eq!(
        europe.delete_subscription("eva", "author:ann").await.unwrap().queued,
        Vec::<String>::new()
    );
    assert!(europe.list_subscriptions("eva").await.unwrap().0.is_empty());
    usa.retract_article("ann", &article.id, None).await.unwrap();
    until_titles(&europe, "eva", &[]).await;
    assert!(usa.read_article(&article.id, None).await.unwrap().is_retracted());
}
