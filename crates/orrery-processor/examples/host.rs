//! A host that writes every delivery into a file and every event to its output, for tests that start, freeze and kill
//! whole processes.
//!
//! Everything comes from the environment: `ENDPOINT`, `KEY`, `DATABASE`, `CONTAINER`, `LEASES` (a container of the same
//! database, at `LEASE_ENDPOINT` if given), `PROCESSOR`, `INSTANCE`, `LEDGER` (a file), and optionally `MODE`
//! (`all-versions`), `START` (`now`), `DELAY_MS` (per batch), `MAX_ITEMS`, `ABORT_ON` (an item id that ends the process),
//! `FAIL_ON`, `PANIC_ON`, `HANG_ON`, `HALT_ON` (item ids that fail, panic, never return or halt their lease), `DEAD_LETTERS` (a container), `DIE_AFTER` (batches: ends the process after the delegate
//! succeeded), `REGION` (to read in), `LEASES_PER_PARTITION`, and `ACQUIRE_MS`, `RENEW_MS`, `EXPIRY_MS`.

mod shared;

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use azure_data_cosmos::options::Region;
use orrery_processor::dead_letters::ContainerDeadLetters;
use orrery_processor::lease::FeedMode;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::{BatchContext, InstanceName, LeaseTiming, Outcome, Poll, Processor, RawBatch, StartFrom};
use serde_json::json;

type Handled = futures::future::BoxFuture<'static, Result<Outcome, std::io::Error>>;

fn optional(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn required(name: &str) -> Result<String, String> {
    optional(name).ok_or_else(|| format!("{name} is not set"))
}

fn millis(name: &str, otherwise: u64) -> Result<Duration, Box<dyn Error>> {
    let given = optional(name).map(|text| text.parse()).transpose()?;
    Ok(Duration::from_millis(given.unwrap_or(otherwise)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (endpoint, key, database) = (required("ENDPOINT")?, required("KEY")?, required("DATABASE")?);
    let region = Region::from(optional("REGION").unwrap_or_else(|| "West US".to_owned()));
    let client = shared::client(&endpoint, &key, region.clone()).await?;
    let monitored = client
        .database_client(&database)
        .container_client(&required("CONTAINER")?, None)
        .await?;
    let lease_endpoint = optional("LEASE_ENDPOINT").unwrap_or_else(|| endpoint.clone());
    let lease_client = shared::client(&lease_endpoint, &key, region).await?;
    let leases = lease_client
        .database_client(&database)
        .container_client(&required("LEASES")?, None)
        .await?;

    let mut builder = Processor::builder(required("PROCESSOR")?)
        .monitored(&client, monitored)
        .lease_container(leases)
        .instance(InstanceName::new(required("INSTANCE")?)?)
        .start_from(if optional("START").as_deref() == Some("now") {
            StartFrom::Now
        } else {
            StartFrom::Beginning
        })
        .poll(Poll::every(Duration::from_millis(100)))
        .lease_timing(LeaseTiming {
            acquire: millis("ACQUIRE_MS", 500)?,
            renew: millis("RENEW_MS", 700)?,
            expiry: millis("EXPIRY_MS", 2500)?,
            lock: Duration::from_secs(5),
        })
        .on_event(|event| println!("{event:?}"));
    if optional("MODE").as_deref() == Some("all-versions") {
        builder = builder.mode(FeedMode::AllVersionsAndDeletes).start_from(StartFrom::Now);
    }
    if let Some(items) = optional("MAX_ITEMS") {
        builder = builder.max_items(items.parse()?);
    }
    if let Some(leases) = optional("LEASES_PER_PARTITION") {
        builder = builder.leases_per_partition(leases.parse()?);
    }
    if let Some(name) = optional("DEAD_LETTERS") {
        let letters = client.database_client(&database).container_client(&name, None).await?;
        let retry = RetryPolicy {
            attempts: 2,
            ..RetryPolicy::default()
        };
        builder = builder.dead_letters(ContainerDeadLetters::new(letters)).retry(retry);
    }
    let running = builder.build_raw(delegate()?)?.start().await?;
    println!("ready");
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => {}
        () = running.ended() => {}
    }
    let stopped = running.stop(Duration::from_secs(10)).await;
    println!("stopped {:?}", stopped.not_released);
    Ok(())
}

/// Writes a line per change, in one write per batch, so that lines of several processes do not mix.
fn delegate() -> Result<impl Fn(RawBatch, BatchContext) -> Handled, Box<dyn Error>> {
    let (path, instance) = (required("LEDGER")?, required("INSTANCE")?);
    let delay = Duration::from_millis(optional("DELAY_MS").map_or(Ok(0), |text| text.parse())?);
    let [abort_on, fail_on, panic_on, hang_on, halt_on] =
        ["ABORT_ON", "FAIL_ON", "PANIC_ON", "HANG_ON", "HALT_ON"].map(optional);
    let die_after = optional("DIE_AFTER").map(|text| text.parse::<u32>()).transpose()?;
    let n_batches = std::sync::atomic::AtomicU32::new(0);
    Ok(move |batch: RawBatch, context: BatchContext| -> Handled {
        let has = |id: &Option<String>| id.is_some() && batch.iter().any(|change| change.id() == id.as_deref());
        if has(&abort_on) {
            std::process::abort();
        }
        if has(&fail_on) {
            return Box::pin(async { Err(std::io::Error::other("told to fail")) });
        }
        assert!(!has(&panic_on), "told to panic");
        if has(&hang_on) {
            return Box::pin(std::future::pending());
        }
        if has(&halt_on) {
            let reason = "told to halt".to_owned();
            return Box::pin(async { Ok(Outcome::HaltLease { reason }) });
        }
        let n_before = n_batches.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let dies = die_after.is_some_and(|limit| n_before + 1 >= limit);
        let lines: String = batch
            .iter()
            .map(|change| {
                let line = json!({
                    "key": change.key(&["/pk".to_owned()]), "id": change.id(), "lsn": change.metadata.lsn,
                    "host": instance, "lease": context.lease, "operation": format!("{:?}", change.metadata.operation),
                    "batch": n_before, "epoch": context.epoch,
                });
                format!("{line}\n")
            })
            .collect();
        let path = path.clone();
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(lines.as_bytes())?;
            if dies {
                std::process::abort();
            }
            Ok(Outcome::Done)
        })
    })
}
