//! Content publishing over accounts in many regions.
//!
//! Every region has its own account. An author writes to the account of the own region; readers anywhere read all accounts
//! from the own region and see their union. What the accounts mean together is decided by functions that know no clock, no
//! network and no chance: [`entity`] (documents and their keys), [`ids`], [`union`] (pages over all accounts), [`rating`],
//! [`fanout::decide`] and [`fanout::audience`] (who is notified), [`topology`] (which account is whose). The rest carries it
//! out through the official SDK, so that it works against Azure and against Orrery alike.

pub mod account;
mod clock;
pub mod database;
pub mod entity;
pub mod error;
pub mod fanout;
pub mod filter;
pub mod ids;
pub mod lanes;
pub mod outage;
pub mod rating;
pub mod stream;
mod supervise;
pub mod topology;
pub mod union;

pub use account::AccountSettings;
pub use database::ContentPublishDatabase;
pub use error::PublishError;
/// The processor whose settings roles take.
pub use orrery_processor as processor;
