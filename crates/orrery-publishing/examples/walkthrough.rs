//! The walk-through of `docs/guides/publishing-walkthrough.md`, step by step, on the accounts of `orrery up` or on your own.
//!
//! ```console
//! $ orrery up                                                # in another terminal
//! $ cargo run -p orrery-publishing --example walkthrough
//! ```

use std::time::{Duration, Instant};

use orrery_processor::InstanceName;
use orrery_publishing::database::PageRequest;
use orrery_publishing::entity::Draft;
use orrery_publishing::fanout::{Fanout, FanoutSettings};
use orrery_publishing::topology::{AccountEntry, AccountKey, AccountTable};
use orrery_publishing::{AccountSettings, ContentPublishDatabase};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Of `orrery up` and of every emulator.
const DEVELOPMENT_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
/// How long an article may take to another region before something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// The table of three regions. On Azure the endpoint is `https://contentpubdatabase-usa.documents.azure.com/`, and so on.
fn accounts() -> Result<AccountTable, Failure> {
    let entry = |tag: &str, port: u16, [write, first, second]: [&str; 3]| AccountEntry {
        name: format!("contentpubdatabase-{tag}"),
        tag: tag.to_owned(),
        endpoint: format!("http://localhost:{port}/"),
        key: AccountKey(DEVELOPMENT_KEY.to_owned()),
        write_region: write.to_owned(),
        read_regions: vec![first.to_owned(), second.to_owned()],
    };
    Ok(AccountTable::new(vec![
        entry("usa", 8100, ["West US", "North Europe", "Southeast Asia"]),
        entry("europe", 8110, ["North Europe", "West US", "Southeast Asia"]),
        entry("asia", 8120, ["Southeast Asia", "North Europe", "West US"]),
    ])?)
}

/// The data access layer of a region, which writes to the region's own account and reads all of them close by.
async fn open(table: &AccountTable, region: &str) -> Result<ContentPublishDatabase, Failure> {
    let database = ContentPublishDatabase::new(table.clone(), region, &AccountSettings::default())?;
    database.prepare().await?;
    Ok(database)
}

/// From subscribing in Asia to reading the review in the United States.
pub async fn walk(table: &AccountTable) -> Result<(), Failure> {
    let (usa, asia) = (open(table, "West US").await?, open(table, "Southeast Asia").await?);
    let role = Fanout::new(&asia, FanoutSettings::new(InstanceName::new("walkthrough")?)).start();

    asia.create_author_subscription("aki", "ann").await?;
    println!("aki, in Southeast Asia, follows ann");

    let draft = Draft {
        category: "sports".to_owned(),
        tags: vec!["ski".to_owned()],
        title: "Snow".to_owned(),
        body: "It snows.".to_owned(),
    };
    let published = usa.publish_article("ann", draft, None).await?;
    let id = published.article.id;
    println!("ann, in West US, has published {id}");

    let begun = Instant::now();
    let told = loop {
        let feed = asia.read_notification_feed("aki", &PageRequest::default()).await?;
        if let Some(told) = feed.items.into_iter().find(|told| told.article_id == id) {
            break told;
        }
        if begun.elapsed() > PATIENCE {
            return Err("the notification does not come".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!("aki was notified after {} ms", begun.elapsed().as_millis());

    let article = asia.read_article(&id, told.article_token.as_deref()).await?;
    asia.write_review(&id, "aki", "I have read it.", 5).await?;
    println!(
        "aki has read \"{}\" and reviewed it, both in Southeast Asia",
        article.title
    );

    loop {
        let reviews = usa.read_reviews(&id, &PageRequest::default()).await?;
        if let Some(review) = reviews.items.first() {
            println!(
                "ann reads in West US: {} of 5, \"{}\"",
                review.rating, review.review_text
            );
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err("the review does not come".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    role.stop().await;
    Ok(())
}

#[allow(dead_code, reason = "the tests walk on accounts of their own")]
#[tokio::main]
async fn main() -> Result<(), Failure> {
    walk(&accounts()?).await
}
