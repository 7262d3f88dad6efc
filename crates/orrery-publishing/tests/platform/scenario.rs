//! The founding scenario from end to end: authors and readers all over the world, every write and read local.

use std::time::{Duration, Instant};

use orrery_publishing::database::PageRequest;

use crate::world::{LATENCY_MS, REGIONS, World, draft, feed, titles, until, until_titles};

/// What reads of content are in an account's own count. Connecting and watching the account are not among them.
const READS: [&str; 2] = ["read_item", "query_items"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_author_publishes_at_home_and_readers_everywhere_are_notified_read_and_review_at_home() {
    let world = World::new().await;
    let [usa, europe, asia] = world.databases();
    let roles = world.start_roles();
    usa.create_subscription("uma", "author:ann").await.unwrap();
    europe.create_subscription("eva", "sports").await.unwrap();
    asia.create_author_subscription("aki", "ann").await.unwrap();
    asia.create_subscription("aki", "sports").await.unwrap();
    asia.create_subscription("zed", "category:art").await.unwrap();

    let published = usa.publish_article("ann", draft("sports", "Snow"), None).await.unwrap();
    assert!(published.is_new && published.article.id.starts_with("usa."));
    let id = published.article.id;
    // Another region may not have it yet; the reader gets it all the same.
    assert_eq!(asia.read_article(&id, None).await.unwrap().title, "Snow");

    for (database, user) in [(&usa, "uma"), (&europe, "eva"), (&asia, "aki")] {
        until_titles(database, user, &["Snow"]).await;
    }
    let items = feed(&asia, "aki").await;
    let filters: Vec<String> = items[0].matched_filters.iter().map(ToString::to_string).collect();
    assert_eq!(filters, ["author:ann", "category:sports"]);
    assert_eq!(
        (items[0].home_account.as_str(), items[0].subscription_filter.to_string()),
        ("asia", "author:ann".into())
    );
    let token = items[0].article_token.clone();
    assert!(token.is_some());
    assert_eq!(
        asia.read_article(&id, token.as_deref()).await.unwrap().body,
        "All about Snow."
    );
    assert!(feed(&asia, "zed").await.is_empty());

    for (database, user, rating) in [(&usa, "uma", 5), (&europe, "eva", 4), (&asia, "aki", 2)] {
        database
            .write_review(&id, user, "I have read it.", rating)
            .await
            .unwrap();
    }
    for database in [&usa, &europe, &asia] {
        until("every region lists all reviews", async || {
            let page = database.read_reviews(&id, &PageRequest::default()).await.unwrap();
            let users: Vec<&str> = page.items.iter().map(|review| review.user_id.as_str()).collect();
            users == ["aki", "eva", "uma"]
        })
        .await;
        until("every region counts all reviews", async || {
            let rating = database.read_article_summary(&id).await.unwrap().rating;
            (rating.count, rating.histogram, rating.average) == (3, [0, 1, 0, 1, 1], Some(11.0 / 3.0))
        })
        .await;
    }
    for role in roles {
        role.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_region_can_publish_and_a_reader_sees_the_union_in_the_order_of_publishing() {
    let world = World::of_regions(1, LATENCY_MS).await;
    let databases = world.databases();
    let _roles = world.start_roles();
    databases[1].create_subscription("eva", "sports").await.unwrap();
    let mut expected = Vec::new();
    for round in 0..3 {
        for (database, tag) in databases.iter().zip(["usa", "europe", "asia"]) {
            let title = format!("{tag} {round}");
            database
                .publish_article("ann", draft("sports", &title), None)
                .await
                .unwrap();
            expected.insert(0, title);
        }
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    until_titles(&databases[1], "eva", &expected).await;
    // The same user, looking from elsewhere.
    until_titles(&databases[2], "eva", &expected).await;
    until_titles(&databases[0], "eva", &expected).await;
    // Two pages, the second one asked for in another region.
    let request = PageRequest {
        size: 5,
        ..PageRequest::default()
    };
    let first = databases[1].read_notification_feed("eva", &request).await.unwrap();
    let request = PageRequest {
        continuation: first.continuation,
        ..PageRequest {
            size: 10,
            ..PageRequest::default()
        }
    };
    let second = databases[0].read_notification_feed("eva", &request).await.unwrap();
    let all: Vec<&str> = first
        .items
        .iter()
        .chain(&second.items)
        .map(|item| item.title.as_str())
        .collect();
    assert_eq!((all, second.continuation), (expected, None));
    assert!(
        second
            .accounts
            .iter()
            .all(|account| account.region.as_deref() == Some("West US")),
        "{:?}",
        second.accounts
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_and_reviewing_take_less_than_one_way_over_the_ocean() {
    let world = World::of_regions(1, LATENCY_MS).await;
    let ocean = Duration::from_millis(LATENCY_MS);
    for (number, database) in world.databases().iter().enumerate() {
        // The quickest of a few: the machine may be busy, but a write that had to cross would never be that quick.
        let mut quickest = Duration::MAX;
        for attempt in 0..5 {
            let begun = Instant::now();
            let title = format!("{number} {attempt}");
            let published = database
                .publish_article("ann", draft("sports", &title), None)
                .await
                .unwrap();
            database
                .write_review(&published.article.id, "bob", "Fine.", 4)
                .await
                .unwrap();
            quickest = quickest.min(begun.elapsed());
        }
        assert!(quickest < ocean, "{}: {quickest:?}", database.region());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_elsewhere_is_notified_within_the_way_and_a_second() {
    let world = World::of_regions(1, LATENCY_MS).await;
    let [usa, _, asia] = world.databases();
    let _roles = world.start_roles();
    asia.create_subscription("aki", "author:ann").await.unwrap();
    usa.publish_article("ann", draft("sports", "First"), None)
        .await
        .unwrap();
    until_titles(&asia, "aki", &["First"]).await;
    let within = Duration::from_millis(LATENCY_MS) + Duration::from_secs(1);
    let mut took = Vec::new();
    for number in 0..5 {
        let title = format!("Number {number}");
        usa.publish_article("ann", draft("sports", &title), None).await.unwrap();
        let begun = Instant::now();
        until("aki is notified", async || {
            titles(&feed(&asia, "aki").await).contains(&title.as_str())
        })
        .await;
        took.push(begun.elapsed());
    }
    took.sort();
    assert!(took[2] <= within, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_crosses_the_ocean_while_the_readers_own_region_is_well() {
    let world = World::of_regions(1, LATENCY_MS).await;
    let writer = world.database(REGIONS[0]);
    let article = writer
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    for database in world.databases() {
        until("the article is everywhere", async || {
            let author = orrery_publishing::filter::Filter::parse("author:ann").unwrap();
            !database
                .list_articles(&author, &PageRequest::default())
                .await
                .unwrap()
                .items
                .is_empty()
        })
        .await;
    }
    for (database, region) in world.databases().iter().zip(REGIONS) {
        let n_outside = || {
            let counts = world
                .servers
                .iter()
                .map(|server| server.n_requests_outside(region, &READS));
            counts.sum::<u64>()
        };
        let before = n_outside();
        for _ in 0..3 {
            database.read_article(&article.id, None).await.unwrap();
            database
                .read_reviews(&article.id, &PageRequest::default())
                .await
                .unwrap();
            database.read_article_summary(&article.id).await.unwrap();
            database
                .read_notification_feed("aki", &PageRequest::default())
                .await
                .unwrap();
            database.list_subscriptions("aki").await.unwrap();
        }
        assert_eq!(n_outside(), before, "reads from {region}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_layer_runs_on_one_account_for_all_regions() {
    let world = World::shared().await;
    let databases = world.databases();
    let [usa, europe, asia] = &databases;
    let roles = world.start_roles();
    europe.create_subscription("eva", "sports").await.unwrap();
    let article = asia
        .publish_article("ann", draft("sports", "Snow"), Some("attempt"))
        .await
        .unwrap()
        .article;
    for database in &databases {
        until_titles(database, "eva", &["Snow"]).await;
        database
            .write_review(&article.id, database.region(), "Fine.", 4)
            .await
            .unwrap();
    }
    // The same insert from another region is the same document.
    let again = usa
        .publish_article("ann", draft("sports", "Snow"), Some("attempt"))
        .await
        .unwrap();
    assert_eq!((again.article.id, again.is_new), (article.id.clone(), false));
    for database in &databases {
        until("all reviews are there", async || {
            let page = database
                .read_reviews(&article.id, &PageRequest::default())
                .await
                .unwrap();
            page.items.len() == 3
        })
        .await;
    }
    for role in roles {
        role.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_walk_through_of_the_guide_comes_to_its_end() {
    let world = World::new().await;
    crate::walkthrough::walk(world.databases()[0].table()).await.unwrap();
}
