//! The data access layer as it was first published, translated line by line: what the platform's own must do better is shown
//! against this.
//!
//! It knows one container, sets no ids, filters by one member without the type or the partition key, prefers the account's own
//! region, waits for every account in every round and appends the answers in whatever order they come.

use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::feed::{FeedScope, Query};
use azure_data_cosmos::options::{MaxItemCountHint, QueryOptions, Region};
use azure_data_cosmos::{AccountReference, CosmosError, CosmosRuntime, RoutingStrategy};
use futures::StreamExt as _;
use futures::future::try_join_all;
use orrery_publishing::ContentPublishDatabase;
use orrery_publishing::ids;
use serde_json::{Value, json};

use crate::world::KEY;

pub struct Original {
    write: ContainerClient,
    clients: Vec<ContainerClient>,
}

impl Original {
    /// Clients as the original makes them for a region: each prefers the region of its own account.
    pub async fn new(database: &ContentPublishDatabase) -> Original {
        let (mut clients, mut write) = (Vec::new(), None);
        for account in database.accounts() {
            let entry = account.entry();
            let reference = AccountReference::with_authentication_key(entry.endpoint.parse().unwrap(), KEY.to_owned());
            let preferred = entry.regions().map(|region| Region::from(region.to_owned())).collect();
            let routing = RoutingStrategy::PreferredRegions(preferred);
            let runtime = CosmosRuntime::builder().build().await.unwrap();
            let client = CosmosClient::builder().with_runtime(runtime).build(reference, routing);
            let client = client.await.unwrap();
            let names = account.settings();
            let theirs = client.database_client(names.database.clone());
            let container = theirs.container_client(names.content.clone(), None).await.unwrap();
            if account.tag() == database.local().tag() {
                write = Some(container.clone());
            }
            clients.push(container);
        }
        Original {
            write: write.unwrap(),
            clients,
        }
    }

    /// Creates a review; its id is drawn anew with every call, as the original client library did.
    pub async fn write_review(
        &self,
        article: &str,
        user: &str,
        text: &str,
        rating: u8,
        call: u32,
    ) -> Result<(), CosmosError> {
        let id = ids::message_id("drawn", &[&call.to_string()]);
        let review = json!({
            "id": id, "PartitionKey": article, "ArticleId": article, "UserId": user, "ReviewText": text, "Rating": rating,
        });
        self.write
            .create_item(article.to_owned(), &id, &review, None)
            .await
            .map(drop)
    }

    pub async fn read_notification_feed(&self, user: &str) -> Result<Vec<Value>, CosmosError> {
        self.union("SELECT * FROM c WHERE c.UserId = @value", user).await
    }

    pub async fn read_reviews(&self, article: &str) -> Result<Vec<Value>, CosmosError> {
        self.union("SELECT * FROM c WHERE c.ArticleId = @value", article).await
    }

    /// As long as anybody has more pages: the next page of all of them, all awaited, all appended.
    async fn union(&self, text: &str, value: &str) -> Result<Vec<Value>, CosmosError> {
        let mut queries = Vec::new();
        for client in &self.clients {
            let query = Query::from(text).with_parameter("@value", value)?;
            let options = QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(2.try_into().unwrap()));
            let pages = client
                .query_items::<Value>(query, FeedScope::full_container(), Some(options))
                .await?;
            queries.push(pages.into_pages());
        }
        let mut all = Vec::new();
        loop {
            let round = queries.iter_mut().map(|pages| async { pages.next().await.transpose() });
            let round = try_join_all(round).await?;
            if round.iter().all(Option::is_none) {
                return Ok(all);
            }
            all.extend(round.into_iter().flatten().flat_map(|page| page.into_items()));
        }
    }
}
