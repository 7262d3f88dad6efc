//! Accounts as processes, one per region and each in all regions, and content written to them in batches.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::TransactionalBatch;
use orrery_publishing::database::PageRequest;
use orrery_publishing::entity::{Article, Draft, Entity, Notification, Review, Subscription};
use orrery_publishing::filter::Filter;
use orrery_publishing::topology::{AccountEntry, AccountKey, AccountTable};
use orrery_publishing::{AccountSettings, ContentPublishDatabase};
use tokio::task::JoinSet;

use crate::process::{Server, text};
use crate::sign::DEVELOPMENT_KEY;

const REGIONS: [(&str, &str); 3] = [
    ("usa", "West US"),
    ("europe", "North Europe"),
    ("asia", "Southeast Asia"),
];
/// Batches that are under way at the same time: so many that each account makes some of them durable together, and so few that
/// none waits for longer than the SDK does.
const BATCHES_IN_FLIGHT: usize = 32;
/// How often a batch is sent that is not answered in time: accounts with a million documents pause while they merge tables.
const ATTEMPTS: u32 = 5;
/// Most documents of one batch.
const BATCH_MAX: usize = 100;
/// Notifications that each user has.
pub const NOTIFICATIONS_PER_USER: u64 = 100;
pub const REVIEWS_PER_ARTICLE: u64 = 5;
/// How long it may take until what was made is everywhere, in a run with millions of documents on a slow machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// When everything that is loaded was written: long ago, so that nobody is notified of it again.
const THEN_MS: u64 = 1_600_000_000_000;

/// The accounts of a platform and the data access layer of each region.
pub struct World {
    pub servers: Vec<Server>,
    pub databases: Vec<ContentPublishDatabase>,
}

impl World {
    /// A platform of the first so many regions.
    pub async fn start(directory: &Path, n_regions: usize) -> Result<World> {
        let regions = &REGIONS[..n_regions];
        let (mut servers, mut entries) = (Vec::new(), Vec::new());
        for (number, (tag, region)) in regions.iter().enumerate() {
            let others = regions.iter().map(|(_, other)| *other).filter(|other| other != region);
            let names: Vec<&str> = std::iter::once(*region).chain(others).collect();
            let data = directory.join(tag);
            let server = Server::orrery(&["--data-dir", text(&data)?, "--regions", &names.join(",")])?;
            entries.push(AccountEntry {
                name: format!("account-{number}"),
                tag: (*tag).to_owned(),
                endpoint: format!("http://localhost:{}/", server.port),
                key: AccountKey(DEVELOPMENT_KEY.to_owned()),
                write_region: (*region).to_owned(),
                read_regions: names[1..].iter().map(|name| (*name).to_owned()).collect(),
            });
            servers.push(server);
        }
        let table = AccountTable::new(entries)?;
        let mut databases = Vec::new();
        for (_, region) in regions {
            let database = ContentPublishDatabase::new(table.clone(), region, &AccountSettings::default())?;
            database.prepare().await?;
            databases.push(database);
        }
        let world = World { servers, databases };
        world
            .until("every account answers", async || world.all_answer().await)
            .await?;
        Ok(world)
    }

    async fn all_answer(&self) -> bool {
        for database in &self.databases {
            let page = database.read_reviews("none", &PageRequest::default()).await;
            if !page.is_ok_and(|page| page.missing.is_empty()) {
                return false;
            }
        }
        true
    }

    pub async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) -> Result<()> {
        let wait = async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = tokio::time::timeout(PATIENCE, wait).await;
        ended.with_context(|| format!("not within {PATIENCE:?}: {what}"))
    }

    /// Time on a core of all accounts so far.
    pub fn cpu(&self) -> Result<Duration> {
        self.servers.iter().map(Server::cpu).sum()
    }

    /// Gives users of these numbers their notifications, each in the account where the user is at home.
    pub async fn notify(&self, users: std::ops::Range<u64>) -> Result<()> {
        let batches = users.map(|user| {
            let (database, name) = (self.home(user), user_name(user));
            let documents = (0..NOTIFICATIONS_PER_USER).map(move |number| {
                let article = article(database, (user * 7919 + number) % 1_000_000_007, number);
                let filters = article.filters().into_iter().take(1).collect();
                Notification::new(&name, &article, filters, None, database.local().tag(), THEN_MS).document()
            });
            (database, user_name(user), documents.collect())
        });
        write_all(batches).await
    }

    /// Publishes articles of these numbers, each with its reviews.
    pub async fn publish(&self, articles: std::ops::Range<u64>) -> Result<()> {
        let batches = articles.map(|number| {
            let database = self.home(number);
            let article = article(database, number, number);
            let reviews = (0..REVIEWS_PER_ARTICLE).filter_map(|reader| {
                let (user, rating) = (user_name(reader), 1 + (reader % 5) as u8);
                let tag = database.local().tag();
                let review = Review::new(&article.id, &user, tag, "Worth reading.", rating, THEN_MS + reader);
                review.ok().map(|review| review.document())
            });
            let documents = std::iter::once(article.document()).chain(reviews).collect();
            (database, article.id.clone(), documents)
        });
        write_all(batches).await
    }

    /// Lets so many users follow a filter in the account of the first region.
    pub async fn subscribe(&self, filter: &str, n_users: u64) -> Result<()> {
        let (filter, database) = (Filter::parse(filter)?, &self.databases[0]);
        let users: Vec<u64> = (0..n_users).collect();
        let batches = users.chunks(BATCH_MAX).map(|users| {
            let documents = users.iter().map(|user| {
                let tag = database.local().tag();
                Subscription::new(&user_name(*user), filter.clone(), 0, tag, THEN_MS).document()
            });
            (database, filter.to_string(), documents.collect())
        });
        write_all(batches).await
    }

    /// The region where a user or an article is at home.
    pub fn home(&self, number: u64) -> &ContentPublishDatabase {
        &self.databases[(number % self.databases.len() as u64) as usize]
    }
}

pub fn user_name(number: u64) -> String {
    format!("user {number:07}")
}

pub fn article_id(database: &ContentPublishDatabase, number: u64) -> String {
    format!("{}.loaded-{number:09}", database.local().tag())
}

fn article(database: &ContentPublishDatabase, number: u64, minute: u64) -> Article {
    let draft = Draft {
        category: format!("category {}", number % 1000),
        tags: vec!["news".to_owned(), format!("tag {}", number % 100)],
        title: format!("What happened on the occasion of number {number}"),
        body: "Nobody knows how it came about, and everybody has an opinion. ".repeat(8),
    };
    let author = format!("author {}", number % 10_000);
    let id = article_id(database, number);
    Article::new(id, database.local().tag(), &author, draft, THEN_MS + minute * 60_000)
        .expect("what is loaded is well formed")
}

type Batch<'a> = (&'a ContentPublishDatabase, String, Vec<serde_json::Value>);

/// Writes batches, each in a task of its own: putting them together takes as long as sending them.
async fn write_all<'a>(batches: impl Iterator<Item = Batch<'a>>) -> Result<()> {
    let mut writing = JoinSet::new();
    for (database, key, documents) in batches {
        if writing.len() >= BATCHES_IN_FLIGHT
            && let Some(written) = writing.join_next().await
        {
            written??;
        }
        let container = database.local().connected().await?.content.clone();
        writing.spawn(write(container, key, documents));
    }
    while let Some(written) = writing.join_next().await {
        written??;
    }
    Ok(())
}

/// One that may have been written is written again.
async fn write(container: ContainerClient, key: String, documents: Vec<serde_json::Value>) -> Result<()> {
    let mut n_tried = 0;
    loop {
        let mut batch = TransactionalBatch::new(key.clone());
        for document in &documents {
            batch = batch.upsert_item(document, None)?;
        }
        n_tried += 1;
        match container.execute_transactional_batch(batch, None).await {
            Ok(answer) => {
                let answer = answer.into_model()?;
                let is_written = answer.results().iter().all(|result| result.status_code() / 100 == 2);
                ensure!(is_written, "a batch was not written");
                return Ok(());
            }
            Err(_) if n_tried < ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
    }
}
