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
mod metrics;
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

pub use delegate::{Batch, BatchContext, CheckpointError, ItemsFailed, RawBatch};
pub use events::{Event, Loss};
pub use metrics::{LeaseChange, Metrics, NoMetrics};
pub use names::InstanceName;
pub use processor::{
    Checkpoint, Concurrency, GiveUp, KeyOrder, LeaseHealth, LeaseTiming, Poll, Processor, ProcessorBuilder, Running,
    Settings, Stopped, WindowPolicy,
};
pub use start::{Position, StartFrom};
