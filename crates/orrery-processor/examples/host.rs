//! A host that writes every delivery into a file and every event to its output, for tests that start, freeze and kill
//! whole processes.
//!
//! Everything comes from the environment: `ENDPOINT`, `KEY`, `DATABASE`, `CONTAINER`, `LEASES` (a container of the same
//! database, at `LEASE_ENDPOINT` with `LEASE_KEY` if given), `PROCESSOR`, `INSTANCE`, `LEDGER` (a file), and optionally `MODE`
//! (`all-versions`), `START` (`now`), `DELAY_MS` (per batch), `MAX_ITEMS`, `ABORT_ON` (an item id that ends the process),
//! `FAIL_ON`, `PANIC_ON`, `HANG_ON`, `HALT_ON` (item ids that fail, panic, never return or halt their lease), `DEAD_LETTERS` (a
//! container), `DIE_AFTER` (batches: ends the process after the delegate succeeded), `STUBBORN_MS` (per batch, which then goes
//! on whatever happens to the lease, and saves its position itself), `REGION` (to read in), `LEASES_PER_PARTITION`, `LEASES_MIN`,
//! `LEASES_MAX`, `STUCK_MS`, `HEALTH_MS` (how often its health is printed), and `ACQUIRE_MS`, `RENEW_MS`, `EXPIRY_MS`, `LOCK_MS`.

mod shared;

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use azure_data_cosmos::options::Region;
use orrery_processor::balance::BalanceSettings;
use orrery_processor::dead_letters::ContainerDeadLetters;
use orrery_processor::lease::FeedMode;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::{
    BatchContext, Checkpoint, InstanceName, LeaseHealth, LeaseTiming, Outcome, Poll, Processor, RawBatch, Running,
    StartFrom,
};
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
    let lease_key = optional("LEASE_KEY").unwrap_or(key);
    let lease_client = shared::client(&lease_endpoint, &lease_key, region).await?;
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
            lock: millis("LOCK_MS", 5000)?,
        })
        .on_event(|event| println!("{event:?}"));
    if optional("MODE").as_deref() == Some("all-versions") {
        builder = builder.mode(FeedMode::AllVersionsAndDeletes).start_from(StartFrom::Now);
    }
    if optional("STUBBORN_MS").is_some() {
        builder = builder.checkpoint(Checkpoint::Manual);
    }
    if let Some(items) = optional("MAX_ITEMS") {
        builder = builder.max_items(items.parse()?);
    }
    if let Some(leases) = optional("LEASES_PER_PARTITION") {
        builder = builder.leases_per_partition(leases.parse()?);
    }
    builder = builder.balance(BalanceSettings {
        leases_min: optional("LEASES_MIN").map_or(Ok(0), |text| text.parse())?,
        leases_max: optional("LEASES_MAX").map(|text| text.parse()).transpose()?,
        ..BalanceSettings::default()
    });
    if optional("STUCK_MS").is_some() {
        builder = builder.stuck_after(millis("STUCK_MS", 0)?);
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
    let tells_health = optional("HEALTH_MS").is_some();
    let mut ticks = tokio::time::interval(millis("HEALTH_MS", 1000)?);
    loop {
        // Signals, the end and ticks lose nothing when another branch is taken.
        tokio::select! {
            _ = terminated.recv() => break,
            () = running.ended() => break,
            _ = ticks.tick(), if tells_health => print_health(&running),
        }
    }
    let stopped = running.stop(Duration::from_secs(10)).await;
    println!("stopped {:?}", stopped.not_released);
    Ok(())
}

/// One line of JSON: whether the host is healthy, and of every lease what is needed to say why.
fn print_health(running: &Running) {
    let millis = |age: Option<Duration>| age.map(|age| age.as_millis() as u64);
    let of_lease = |(token, lease): (&String, &LeaseHealth)| {
        let told =
            json!({"waiting": millis(lease.waiting), "lastPoll": millis(lease.last_poll), "stuck": lease.is_stuck});
        (token.clone(), told)
    };
    let leases: serde_json::Map<_, _> = running.health().iter().map(of_lease).collect();
    println!("health {}", json!({"healthy": running.is_healthy(), "leases": leases}));
}

/// Writes a line per change, in one write per batch, so that lines of several processes do not mix.
fn delegate() -> Result<impl Fn(RawBatch, BatchContext) -> Handled, Box<dyn Error>> {
    let (path, instance) = (required("LEDGER")?, required("INSTANCE")?);
    let delay = Duration::from_millis(optional("DELAY_MS").map_or(Ok(0), |text| text.parse())?);
    let [abort_on, fail_on, panic_on, hang_on, halt_on] =
        ["ABORT_ON", "FAIL_ON", "PANIC_ON", "HANG_ON", "HALT_ON"].map(optional);
    let stubborn = optional("STUBBORN_MS").map(|text| text.parse()).transpose()?;
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
        if let Some(millis) = stubborn {
            return Box::pin(handle_stubbornly(Duration::from_millis(millis), path, lines, context));
        }
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            note(&path, &lines)?;
            if dies {
                std::process::abort();
            }
            Ok(Outcome::Done)
        })
    })
}

fn note(path: &str, lines: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(lines.as_bytes())
}

/// In a task of its own, which nobody ends when the lease is lost.
async fn handle_stubbornly(
    time: Duration,
    path: String,
    lines: String,
    context: BatchContext,
) -> Result<Outcome, std::io::Error> {
    println!("handling");
    let handling = tokio::spawn(async move {
        tokio::time::sleep(time).await;
        note(&path, &lines)?;
        match context.checkpoint().await {
            Ok(saved) => println!("saved {saved:?}"),
            Err(error) => println!("not saved: {error:?}"),
        }
        Ok(Outcome::Done)
    });
    handling.await?
}
