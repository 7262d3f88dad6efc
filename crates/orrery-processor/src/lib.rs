//! A change feed processor on the official Cosmos DB SDK.
//!
//! A *unit* is a processor name with its leases; its *hosts* share the leases of one monitored container, read each range
//! in order, hand the changes to a *delegate* and save the position when it succeeds. It works against Azure and against
//! Orrery, alone or beside hosts of the .NET processor, whose lease documents it shares.
//!
//! Rules and effects are apart. What to do is decided by functions that know no clock, no network and no chance:
//! [`balance`] (who holds which lease), [`reshard`] (what a split or merge makes of one), [`retry`] (what follows a failure),
//! [`lease`] (what a document says and becomes), [`fence`] (until when a host may act). The rest carries it out through two
//! seams, [`feed::FeedSource`] and [`store::LeaseStore`].
//!
//! Delivery is at least once, in order per partition key, without gaps. A change comes again after a crash, a lost lease, a
//! failed attempt or a cut of its range, and not otherwise.
//!
//! A unit on a container in memory; `monitored` and `lease_container` take those of the SDK instead:
//!
//! ```
//! use std::time::Duration;
//!
//! use orrery_processor::store::MemoryLeases;
//! use orrery_processor::testkit::ScriptedFeed;
//! use orrery_processor::{BatchContext, InstanceName, Processor, RawBatch, StartFrom};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let orders = ScriptedFeed::new(4);
//! orders.put("ada", "order 1", serde_json::json!({"total": 42}));
//! let processor = Processor::builder("order-printer")
//!     .source(orders)
//!     .leases(MemoryLeases::new())
//!     .instance(InstanceName::auto())
//!     .start_from(StartFrom::Beginning)
//!     .build_raw(|batch: RawBatch, context: BatchContext| async move {
//!         for change in batch.iter() {
//!             println!("{} of {}", change.id().unwrap_or("?"), context.lease);
//!         }
//!         Ok::<_, std::io::Error>(())
//!     })?;
//! // A service calls `start` and later `stop`; a job works until nothing waits.
//! processor.run_until_caught_up(Duration::from_secs(30)).await?;
//! # Ok(())
//! # }
//! ```

pub mod balance;
mod clock;
pub mod dead_letters;
mod delegate;
pub mod error;
pub mod estimator;
mod events;
pub mod feed;
pub mod fence;
pub mod lease;
pub mod metrics;
pub mod names;
pub mod operations;
mod processor;
pub mod pull;
pub mod range;
pub mod reshard;
pub mod retry;
mod start;
pub mod store;
pub mod testkit;
pub mod token;

pub use clock::out_of_step;
pub use delegate::{Batch, BatchContext, CheckpointError, ItemFailure, Outcome, RawBatch, Saved};
pub use events::{Event, Filled, Loss};
pub use metrics::{Labels, LeaseChange, Metrics, NoMetrics};
pub use names::InstanceName;
pub use processor::{
    Checkpoint, Concurrency, GiveUp, KeyOrder, LeaseHealth, LeaseTiming, Poll, Processor, ProcessorBuilder, Running,
    Settings, Stopped, WindowPolicy,
};
pub use pull::Cursor;
pub use start::{Position, StartFrom};
