//! Dead letters and their replay: one bad order among good ones, set aside, mended, and given back.
//!
//! `orrery emulator --memory` in one terminal; `cargo run -p orrery-processor --example dead_letters` in another. It makes
//! the database `letters-example` anew, and ends when the replay is done.

mod shared;

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orrery_processor::dead_letters::{ContainerDeadLetters, DeadLetterStore as _, replay};
use orrery_processor::feed::Change;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::{Event, InstanceName, Poll, Processor, RawBatch, StartFrom};
use serde_json::json;

const PROCESSOR: &str = "invoices";

/// Whether the bug that rejects negative totals has been mended.
static MENDED: AtomicBool = AtomicBool::new(false);

fn invoice(order: &Change) -> Result<(), String> {
    let item = order.current.as_ref().ok_or("an order is never deleted")?;
    if item["total"].as_f64().unwrap_or(0.0) < 0.0 && !MENDED.load(Ordering::SeqCst) {
        return Err("a total below zero".to_owned());
    }
    println!("invoiced {} of {}", item["id"], item["customer"]);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = shared::connect().await?;
    let containers = [("orders", "/customer"), ("leases", "/id"), ("letters", "/key")];
    let database = shared::fresh_database(&client, "letters-example", &containers).await;
    let orders = database.container_client("orders", None).await?;
    for (id, customer, total) in [
        ("1", "ada", 5.0),
        ("2", "ada", -1.0),
        ("3", "ada", 7.0),
        ("4", "bob", 9.0),
    ] {
        let order = json!({"id": id, "customer": customer, "total": total});
        orders.create_item(customer, id, &order, None).await?;
    }

    let letters = ContainerDeadLetters::new(database.container_client("letters", None).await?);
    let processor = Processor::builder(PROCESSOR)
        .monitored(&client, orders)
        .lease_container(database.container_client("leases", None).await?)
        .instance(InstanceName::auto())
        .start_from(StartFrom::Beginning)
        .poll(Poll::every(Duration::from_millis(200)))
        .dead_letters(letters.clone())
        // A batch is tried twice, then narrowed down to the order at fault.
        .retry(RetryPolicy {
            attempts: 2,
            ..RetryPolicy::default()
        })
        .on_event(|event| {
            if let Event::DeadLettered {
                item, parked, error, ..
            } = event
            {
                let what = if *parked { "parked" } else { "set aside" };
                println!("{what} {}: {error}", item.as_deref().unwrap_or("?"));
            }
        })
        .build_raw(|batch: RawBatch, _| async move { batch.iter().try_for_each(invoice) })?;
    // Works until nothing waits, and stops.
    processor.run_until_caught_up(Duration::from_secs(30)).await?;
    println!("waiting: {}", letters.list(PROCESSOR, 100).await?.len());

    MENDED.store(true, Ordering::SeqCst);
    let everything = |_: &_| true;
    let done = replay(&letters, PROCESSOR, everything, |letter| async move {
        invoice(&letter.change())
    })
    .await?;
    println!("replayed {}, failed {}", done.handled, done.failed.len());
    println!("waiting: {}", letters.list(PROCESSOR, 100).await?.len());
    Ok(())
}
