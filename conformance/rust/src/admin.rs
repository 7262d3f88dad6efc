//! The server's own administration, for what no SDK asks for: splitting and merging partitions, rotating keys, changing
//! the roles of regions.

use std::sync::LazyLock;

use anyhow::{Context as _, Result, ensure};
use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use azure_core::http::Url;
use azure_core::time::{OffsetDateTime, to_rfc7231};
use serde_json::{Value, json};

/// One for all: each reads the machine's certificates anew.
pub static HTTP: LazyLock<reqwest::Client> = LazyLock::new(reqwest::Client::new);

/// Splits the first partition of a container; it is over when this returns.
pub async fn split_first_partition(endpoint: &str, key: &str, database: &str, container: &str) -> Result<()> {
    let query = format!("?database={database}&container={container}");
    let listed = call(endpoint, key, "GET", "_orrery/v1/partitions", &query, None).await?;
    let partition = listed["partitions"][0]["partition"]
        .as_u64()
        .context("the container has no partition")?;
    let form = json!({"database": database, "container": container, "partition": partition});
    call(endpoint, key, "POST", "_orrery/v1/partitions/split", "", Some(form)).await?;
    Ok(())
}

/// The numbers of a container's partitions.
pub async fn partitions(endpoint: &str, key: &str, database: &str, container: &str) -> Result<Vec<u64>> {
    let query = format!("?database={database}&container={container}");
    let listed = call(endpoint, key, "GET", "_orrery/v1/partitions", &query, None).await?;
    let partitions = listed["partitions"].as_array().context("no list of partitions")?;
    Ok(partitions
        .iter()
        .filter_map(|entry| entry["partition"].as_u64())
        .collect())
}

/// The same from left to right.
async fn in_order(endpoint: &str, key: &str, database: &str, container: &str) -> Result<Vec<u64>> {
    let query = format!("?database={database}&container={container}");
    let listed = call(endpoint, key, "GET", "_orrery/v1/partitions", &query, None).await?;
    let mut partitions = listed["partitions"]
        .as_array()
        .context("no list of partitions")?
        .clone();
    partitions.sort_by_key(|entry| entry["minInclusive"].as_str().unwrap_or_default().to_owned());
    let numbers = partitions.iter().filter_map(|entry| entry["partition"].as_u64());
    Ok(numbers.collect())
}

/// Makes the first partition and its right neighbour one.
pub async fn merge_first_two(endpoint: &str, key: &str, database: &str, container: &str) -> Result<()> {
    let partitions = in_order(endpoint, key, database, container).await?;
    let form = json!({"database": database, "container": container, "partitions": partitions[..2]});
    call(endpoint, key, "POST", "_orrery/v1/partitions/merge", "", Some(form)).await?;
    Ok(())
}

/// Splits the leftmost partition.
pub async fn split_leftmost(endpoint: &str, key: &str, database: &str, container: &str) -> Result<()> {
    let partition = in_order(endpoint, key, database, container).await?[0];
    let form = json!({"database": database, "container": container, "partition": partition});
    call(endpoint, key, "POST", "_orrery/v1/partitions/split", "", Some(form)).await?;
    Ok(())
}

/// Splits the first partitions that the container has now, so many of them.
pub async fn split_partitions(endpoint: &str, key: &str, database: &str, container: &str, count: usize) -> Result<()> {
    for partition in partitions(endpoint, key, database, container)
        .await?
        .into_iter()
        .take(count)
    {
        let form = json!({"database": database, "container": container, "partition": partition});
        call(endpoint, key, "POST", "_orrery/v1/partitions/split", "", Some(form)).await?;
    }
    Ok(())
}

/// The new secondary key; the one before is worth nothing from now on.
pub async fn rotate_secondary_key(endpoint: &str, key: &str) -> Result<String> {
    let answer = call(endpoint, key, "POST", "_orrery/v1/keys/secondary/rotate", "", None).await?;
    Ok(answer["key"].as_str().context("no key")?.to_owned())
}

pub async fn call(
    endpoint: &str,
    key: &str,
    verb: &str,
    path: &str,
    query: &str,
    form: Option<Value>,
) -> Result<Value> {
    let url: Url = format!("{endpoint}{path}{query}").parse()?;
    let date = to_rfc7231(&OffsetDateTime::now_utc());
    let text = format!("{}\n\n{path}\n{}\n\n", verb.to_lowercase(), date.to_lowercase());
    let signature = hmac_sha256(&text, &Secret::new(key.to_owned()))?;
    let mut token = Url::parse("https://localhost")?;
    token
        .query_pairs_mut()
        .append_pair("", &format!("type=master&ver=1.0&sig={signature}"));
    let token = token
        .query()
        .and_then(|query| query.strip_prefix('='))
        .context("a token is not empty")?
        .to_owned();
    let request = HTTP
        .request(verb.parse()?, url)
        .header("authorization", token)
        .header("x-ms-date", date)
        .header("content-type", "application/json")
        .body(form.map(|form| form.to_string()).unwrap_or_default());
    let response = request.send().await?;
    let status = response.status();
    let body = response.bytes().await?;
    ensure!(
        status.is_success(),
        "{path}: {status} {}",
        String::from_utf8_lossy(&body)
    );
    Ok(serde_json::from_slice(&body)?)
}
