//! Articles: found wherever they are, changed where they are owned, listed by what they are about.

use orrery_publishing::PublishError;
use orrery_publishing::database::{Applied, PageRequest};
use orrery_publishing::filter::Filter;

use crate::world::{World, draft, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_article_is_changed_in_its_own_account_from_any_region_by_its_author_only() {
    let world = World::new().await;
    let [usa, _, asia] = world.databases();
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    let (id, etag) = (article.id.as_str(), article.etag.unwrap());
    let refused = asia.update_article("bob", id, draft("sports", "Mine"), &etag).await;
    assert!(matches!(refused, Err(PublishError::Forbidden)), "{refused:?}");
    let Applied::Now(edited) = asia
        .update_article("ann", id, draft("art", "Ice"), &etag)
        .await
        .unwrap()
    else {
        panic!("the owner is there")
    };
    assert_eq!((edited.home_account.as_str(), edited.revision), ("usa", 2));
    let stale = usa.update_article("ann", id, draft("art", "Rain"), &etag).await;
    assert!(matches!(stale, Err(PublishError::Changed)), "{stale:?}");
    // The same change again, as after a lost answer.
    let again = asia
        .update_article("ann", id, draft("art", "Ice"), &etag)
        .await
        .unwrap();
    assert!(matches!(again, Applied::Now(article) if article.revision == 2));
    asia.retract_article("ann", id, None).await.unwrap();
    // Another session: a copy that has what this one has seen may answer it.
    until("the author's own region knows", async || {
        usa.read_article(id, None).await.unwrap().is_retracted()
    })
    .await;
    let retracted = usa.read_article(id, None).await.unwrap();
    assert_eq!(retracted.body, "");
    let late = usa
        .update_article("ann", id, draft("art", "Ice"), retracted.etag.as_deref().unwrap())
        .await;
    assert!(matches!(late, Err(PublishError::Retracted)), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_repeated_in_another_region_is_the_same_article_once_that_region_has_heard_of_it() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, asia] = world.databases();
    let snow = || draft("sports", "Snow");
    let first = usa.publish_article("ann", snow(), Some("attempt")).await.unwrap();
    assert!(first.is_new);
    let id = first.article.id.as_str();
    let sports = Filter::parse("sports").unwrap();
    for database in [&europe, &asia] {
        let heard = async || {
            let page = database.list_articles(&sports, &PageRequest::default()).await.unwrap();
            page.items.len() == 1
        };
        until("the region has heard of it", heard).await;
        let again = database.publish_article("ann", snow(), Some("attempt")).await.unwrap();
        assert_eq!((again.article.id.as_str(), again.is_new), (id, false));
        let other = database
            .publish_article("ann", draft("sports", "Ice"), Some("attempt"))
            .await;
        assert!(matches!(other, Err(PublishError::Exists)), "{other:?}");
    }
    // Another author's attempt of the same name is another article.
    let theirs = europe.publish_article("bob", snow(), Some("attempt")).await.unwrap();
    assert!(theirs.is_new);

    // A region that cannot hear of the first attempt goes ahead; repetitions find the earlier one of the two.
    world.servers[0].cut("West US", true);
    let unheard = usa
        .publish_article("ann", draft("sports", "Rain"), Some("unheard"))
        .await
        .unwrap();
    let second = europe
        .publish_article("ann", draft("sports", "Rain"), Some("unheard"))
        .await
        .unwrap();
    assert!(second.is_new && second.article.id != unheard.article.id);
    world.servers[0].cut("West US", false);
    until("all regions know both", async || {
        let page = asia.list_articles(&sports, &PageRequest::default()).await.unwrap();
        page.items.iter().filter(|article| article.title == "Rain").count() == 2
    })
    .await;
    let third = asia
        .publish_article("ann", draft("sports", "Rain"), Some("unheard"))
        .await
        .unwrap();
    assert_eq!((third.article.id, third.is_new), (unheard.article.id, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_article_is_not_found_only_when_every_account_says_so() {
    let world = World::with(1, 0).await;
    let [usa, europe, _] = world.databases();
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    // An id of another maker says nothing about its account.
    let plain =
        orrery_publishing::entity::Article::new("plain-id".into(), "europe", "ann", draft("sports", "Plain"), 5);
    europe.local().create(&plain.unwrap()).await.unwrap();
    until("it is read without knowing whose it is", async || {
        usa.read_article("plain-id", None).await.is_ok()
    })
    .await;
    for id in ["usa.01HF7YAT000W3GE1R70W3GE1R7", "other-id"] {
        assert!(matches!(usa.read_article(id, None).await, Err(PublishError::NotFound)));
    }
    world.servers[2].freeze();
    assert_eq!(usa.read_article(&article.id, None).await.unwrap().title, "Snow");
    let unknown = usa.read_article("other-id", None).await;
    assert!(
        matches!(&unknown, Err(PublishError::Unknown(accounts)) if accounts == &["asia"]),
        "{unknown:?}"
    );
    world.servers[2].thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn articles_are_listed_by_author_category_and_tag_over_all_accounts() {
    let world = World::with(2, 0).await;
    let databases = world.databases();
    for (number, database) in databases.iter().cycle().take(7).enumerate() {
        let category = if number % 2 == 0 { "sports" } else { "art" };
        database
            .publish_article("ann", draft(category, &format!("{number}")), None)
            .await
            .unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    for (filter, expected) in [
        ("author:ann", vec!["6", "5", "4", "3", "2", "1", "0"]),
        ("category:art", vec!["5", "3", "1"]),
        ("tag:news", vec!["6", "5", "4", "3", "2", "1", "0"]),
        ("tag:none", vec![]),
    ] {
        let filter = Filter::parse(filter).unwrap();
        until("every article is listed", async || {
            let request = PageRequest {
                size: 4,
                ..PageRequest::default()
            };
            let first = databases[1].list_articles(&filter, &request).await.unwrap();
            let mut listed: Vec<String> = first.items.iter().map(|article| article.title.clone()).collect();
            assert!(first.items.iter().all(|article| article.body.is_empty()));
            if first.continuation.is_some() {
                let request = PageRequest {
                    continuation: first.continuation,
                    ..request
                };
                let second = databases[1].list_articles(&filter, &request).await.unwrap();
                listed.extend(second.items.iter().map(|article| article.title.clone()));
            }
            listed == expected
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_told_by_its_first_text_after_edits_and_any_version_can_be_changed_on_request() {
    let world = World::of_regions(1, 0).await;
    let [usa, ..] = world.databases();
    let publish = async |title: &str| {
        usa.publish_article("ann", draft("sports", title), Some("attempt"))
            .await
    };
    let article = publish("Snow").await.unwrap().article;
    let edited = usa
        .update_article("ann", &article.id, draft("sports", "Ice"), "*")
        .await
        .unwrap();
    assert!(
        matches!(&edited, Applied::Now(article) if article.revision == 2),
        "{edited:?}"
    );
    let again = publish("Snow").await.unwrap();
    assert_eq!((again.article.title.as_str(), again.is_new), ("Ice", false));
    for other in ["Rain", "Ice"] {
        let refused = publish(other).await;
        assert!(matches!(refused, Err(PublishError::Exists)), "{other}: {refused:?}");
    }
    let retracted = usa.retract_article("ann", &article.id, Some("*")).await.unwrap();
    assert!(matches!(retracted, Applied::Now(article) if article.is_retracted()));
    assert!(!publish("Snow").await.unwrap().is_new);
}
