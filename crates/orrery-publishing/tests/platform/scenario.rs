//! The founding scenario from end to end: authors and readers all over the world, every write and read local.

use orrery_publishing::database::PageRequest;

use crate::world::{World, draft, feed, until, until_titles};

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
    let world = World::new().await;
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
