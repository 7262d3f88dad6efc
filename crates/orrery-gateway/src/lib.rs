//! Translates HTTP into operations, and outcomes into HTTP.
//!
//! [`server`] owns sockets and tasks, [`connection`] one client's connection, [`pipeline`] one request. [`auth`] decides
//! who sends it, [`wire`] what it means and how the answer looks; whoever stands behind [`handler`] executes it. Nothing
//! behind that seam knows a header, a path or an envelope.

pub mod account;
mod activity;
pub mod admin;
mod answer_body;
pub mod auth;
mod body;
pub mod connection;
mod cors;
mod dormant;
pub mod faults;
mod guard;
pub mod handler;
mod head_refusal;
pub mod metrics;
pub mod names;
mod permissions;
pub mod pipeline;
pub mod regions;
pub mod relay;
pub mod server;
pub mod settings;
mod tasks;
pub mod tls;
pub mod wire;

pub use answer_body::AnswerBody;
pub use handler::Handler;
pub use pipeline::{Parts, Pipeline};
pub use server::{Gateway, bind, bind_loopback};
pub use settings::Settings;
