//! Fan-out goes where its account's writes go: another region takes over after a failover and gives the role back, and every
//! subscriber is told of everything once.

use orrery_publishing::ContentPublishDatabase;
use orrery_publishing::account::{ReadAt, Scope};
use orrery_publishing::entity::Notification;
use orrery_publishing::fanout::RunningFanout;
use serde_json::{Value, json};

use crate::world::{LATENCY_MS, World, draft, feed, until, until_titles};

/// The regions whose roles serve subscribers of `usa`, as numbers of regions.
fn holders(roles: &[RunningFanout]) -> Vec<usize> {
    let holds = |role: &RunningFanout| role.holds().iter().any(|account| account == "usa");
    let holders = roles.iter().enumerate().filter(|(_, role)| holds(role));
    holders.map(|(region, _)| region).collect()
}

async fn until_held(roles: &[RunningFanout], region: usize) {
    until("the role has moved", async || holders(roles) == [region]).await;
}

fn fail_over(world: &World, region: &str) {
    world.servers[0].administer("POST", "/_orrery/v1/failover", &json!({"region": region}));
}

/// The titles of all notifications of a user in the account, as they are stored.
async fn stored(database: &ContentPublishDatabase, user: &str) -> Vec<String> {
    let text = "SELECT VALUE c.Title FROM c WHERE c.Type = @type AND c.UserId = @user";
    let parameters = [("@type", "Notification".into()), ("@user", user.into())];
    let found = database.accounts()[0].query(text, &parameters, Scope::Everything).await;
    let mut titles: Vec<String> = found.unwrap().value;
    titles.sort();
    titles
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_follows_its_accounts_writes_there_and_back_and_everybody_is_told_once() {
    let world = World::of_regions(1, LATENCY_MS).await;
    let [usa, europe, asia] = world.databases();
    let roles = world.start_roles();
    until_held(&roles, 0).await;
    usa.create_subscription("bob", "sports").await.unwrap();
    let publish = async |database: &ContentPublishDatabase, number: usize| {
        let draft = draft("sports", &format!("{number:02}"));
        database.publish_article("ann", draft, None).await.unwrap();
    };
    publish(&asia, 0).await;
    until_titles(&usa, "bob", &["00"]).await;

    // Articles go on coming while the account moves, from regions whose accounts do not.
    let (moves, articles) = futures::join!(
        async {
            fail_over(&world, "North Europe");
            until_held(&roles, 1).await;
            // A subscriber whom only the new place knows at once.
            usa.create_subscription("eve", "art").await.unwrap();
            europe.publish_article("ann", draft("art", "Art"), None).await.unwrap();
            until_titles(&europe, "eve", &["Art"]).await;
            fail_over(&world, "West US");
            until_held(&roles, 0).await;
        },
        async {
            for number in 1..30 {
                let from = if number % 2 == 0 { &asia } else { &europe };
                publish(from, number).await;
            }
        }
    );
    let ((), ()) = (moves, articles);
    publish(&asia, 30).await;
    let expected: Vec<String> = (0..=30).map(|number| format!("{number:02}")).collect();
    until("everything has come", async || stored(&usa, "bob").await == expected).await;
    until_titles(&usa, "eve", &["Art"]).await;
    let items = feed(&europe, "bob").await;
    assert!(items.iter().all(|item| item.home_account == "usa"));
    for role in roles {
        role.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_forced_failover_the_next_region_tells_subscribers_what_the_lost_one_took_along() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, asia] = world.databases();
    let roles = world.start_roles();
    until_held(&roles, 0).await;
    usa.create_subscription("bob", "sports").await.unwrap();
    europe
        .publish_article("ann", draft("sports", "Before"), None)
        .await
        .unwrap();
    until_titles(&asia, "bob", &["Before"]).await;
    // What West US writes from now on, nobody else ever hears of.
    world.servers[0].cut("West US", true);
    asia.publish_article("ann", draft("sports", "Taken along"), None)
        .await
        .unwrap();
    until_titles(&usa, "bob", &["Taken along", "Before"]).await;
    world.servers[0].administer("POST", "/_orrery/v1/regions/West%20US/offline", &json!({}));
    until_held(&roles, 1).await;
    until_titles(&europe, "bob", &["Taken along", "Before"]).await;
    asia.publish_article("ann", draft("sports", "After"), None)
        .await
        .unwrap();
    until_titles(&europe, "bob", &["After", "Taken along", "Before"]).await;

    world.servers[0].cut("West US", false);
    world.servers[0].administer("POST", "/_orrery/v1/regions/West%20US/online", &json!({}));
    until("West US has everything again", async || {
        let regions = world.servers[0].administer("GET", "/_orrery/v1/regions", &Value::Null);
        let mut regions = regions["regions"].as_array().unwrap().iter();
        let west = regions.find(|region| region["name"] == "West US").unwrap();
        west["state"] == "online" && west["lagTransactions"] == 0
    })
    .await;
    fail_over(&world, "West US");
    until_held(&roles, 0).await;
    asia.publish_article("ann", draft("sports", "At home"), None)
        .await
        .unwrap();
    until_titles(&usa, "bob", &["At home", "After", "Taken along", "Before"]).await;
    assert_eq!(stored(&usa, "bob").await, ["After", "At home", "Before", "Taken along"]);
    for role in roles {
        role.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_that_was_cut_off_although_it_is_remembered_comes_again_where_the_role_moves() {
    let world = World::of_regions(1, 0).await;
    let [usa, europe, _] = world.databases();
    let roles = world.start_roles();
    usa.create_subscription("bob", "sports").await.unwrap();
    europe
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap();
    until_titles(&usa, "bob", &["Snow"]).await;
    until("the role is done with it", async || {
        roles[0].states().await.iter().all(|state| state.waiting == Some(0))
    })
    .await;
    // Its partition ended earlier than the one that remembers it.
    let lost = feed(&usa, "bob").await.remove(0);
    usa.local().delete("bob", &lost.id).await.unwrap();
    until("it is gone everywhere", async || feed(&europe, "bob").await.is_empty()).await;
    fail_over(&world, "North Europe");
    until_held(&roles, 1).await;
    until_titles(&europe, "bob", &["Snow"]).await;
    let again = europe.accounts()[0]
        .read::<Notification>("bob", &lost.id, ReadAt::Near)
        .await;
    assert_eq!(again.unwrap().value.article_id, lost.article_id);
    for role in roles {
        role.stop().await;
    }
}
