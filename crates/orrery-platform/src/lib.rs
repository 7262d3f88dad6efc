//! The publishing platform as a service: one HTTP API per region.
//!
//! [`route`] says which requests exist, [`token`] who sends them, [`limit`] how many are taken, `handlers` what they do with the
//! region's [`ContentPublishDatabase`](orrery_publishing::ContentPublishDatabase), `answer` and [`view`] what the answer looks
//! like. [`service`] owns sockets and tasks. The API itself is `docs/guides/publishing-api.md`, and `/openapi.json` for machines.

mod answer;
mod assets;
mod clock;
mod cors;
mod extension;
mod handlers;
pub mod limit;
mod metrics;
pub mod openapi;
mod patience;
mod read;
pub mod route;
pub mod service;
mod settings;
pub mod token;
pub mod view;

pub use assets::{Asset, Assets};
pub use extension::{Extension, ExtensionAnswer};
pub use read::is_local;
pub use service::Platform;
pub use settings::{PlatformSettings, RegionUrl};
