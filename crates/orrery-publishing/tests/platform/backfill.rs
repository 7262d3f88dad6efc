//! What a new subscription brings of what was published before, when it is asked for.

use orrery_publishing::PublishError;
use orrery_publishing::database::{Backfilled, PageRequest};

use crate::world::{World, draft, feed, titles, until, until_titles};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_subscription_brings_the_last_articles_of_all_accounts_when_asked_and_nothing_twice() {
    let world = World::with(1, 0).await;
    let databases = world.databases();
    let [usa, europe, asia] = &databases;
    for round in 0..2 {
        for (database, tag) in databases.iter().zip(["usa", "europe", "asia"]) {
            let title = format!("{tag} {round}");
            database
                .publish_article("ann", draft("sports", &title), None)
                .await
                .unwrap();
        }
    }
    usa.publish_article("ann", draft("art", "Not this"), None)
        .await
        .unwrap();
    let retracted = usa
        .publish_article("ann", draft("sports", "Taken back"), None)
        .await
        .unwrap()
        .article;
    usa.retract_article("ann", &retracted.id, None).await.unwrap();
    let sports = orrery_publishing::filter::Filter::parse("sports").unwrap();
    until("everything has arrived", async || {
        let page = europe.list_articles(&sports, &PageRequest::default()).await.unwrap();
        page.items.len() == 6
    })
    .await;

    let Backfilled { n_new, missing, .. } = europe
        .create_subscription_with_backfill("eva", "sports", 4)
        .await
        .unwrap();
    assert_eq!((n_new, missing), (4, Vec::new()));
    let expected = ["asia 1", "europe 1", "usa 1", "asia 0"];
    assert_eq!(titles(&feed(europe, "eva").await), expected);
    let items = feed(europe, "eva").await;
    assert!(
        items
            .iter()
            .all(|item| item.subscription_filter == sports && item.home_account == "europe")
    );

    // Asked for again, with more: only what is missing is new.
    let again = europe
        .create_subscription_with_backfill("eva", "sports", 6)
        .await
        .unwrap();
    assert_eq!(again.n_new, 2);
    // Fan-out that sees these articles late has nothing to add for her.
    let _roles = world.start_roles();
    usa.publish_article("ann", draft("sports", "New"), None).await.unwrap();
    until_titles(
        europe,
        "eva",
        &["New", "asia 1", "europe 1", "usa 1", "asia 0", "europe 0", "usa 0"],
    )
    .await;

    // Whoever does not ask gets nothing of before.
    asia.create_subscription("aki", "sports").await.unwrap();
    let none = asia
        .create_subscription_with_backfill("aki", "sports", 0)
        .await
        .unwrap();
    assert_eq!(none.n_new, 0);
    let refused = asia.create_subscription_with_backfill("aki", "sports", 101).await;
    assert!(matches!(refused, Err(PublishError::Backfill(100))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_counts_although_an_account_with_older_articles_does_not_answer() {
    let world = World::with(1, 0).await;
    let [usa, europe, _] = world.databases();
    usa.publish_article("ann", draft("sports", "Snow"), None).await.unwrap();
    until("it has arrived", async || {
        let sports = orrery_publishing::filter::Filter::parse("sports").unwrap();
        let page = europe.list_articles(&sports, &PageRequest::default()).await.unwrap();
        page.items.len() == 1
    })
    .await;
    world.servers[2].freeze();
    let made = europe
        .create_subscription_with_backfill("eva", "sports", 5)
        .await
        .unwrap();
    assert_eq!((made.n_new, made.missing), (1, vec!["asia".to_owned()]));
    world.servers[2].thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retraction_reaches_whoever_looked_back_between_two_edits() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, _] = world.databases();
    let _roles = world.start_roles();
    // Whoever is told by fan-out shows how far it is.
    europe.create_subscription("zoe", "category:done").await.unwrap();
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    let edit = async |category: &str| {
        let edited = usa
            .update_article("ann", &article.id, draft(category, "Snow"), "*")
            .await;
        edited.unwrap();
        let title = format!("after {category}");
        usa.publish_article("ann", draft("done", &title), None).await.unwrap();
        until("fan-out has seen the edit", async || {
            titles(&feed(&europe, "zoe").await).contains(&title.as_str())
        })
        .await;
    };
    edit("art").await;
    let made = europe.create_subscription_with_backfill("eva", "art", 5).await.unwrap();
    assert_eq!(made.n_new, 1);
    edit("music").await;
    until_titles(&europe, "eva", &["Snow"]).await;
    usa.retract_article("ann", &article.id, None).await.unwrap();
    until_titles(&europe, "eva", &[]).await;
}
