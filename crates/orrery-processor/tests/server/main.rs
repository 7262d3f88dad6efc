//! Hosts as processes against a running server, through the official SDK: frozen, killed, started again; partitions split
//! and merged below them; a ledger file that proves what was delivered.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

mod admin;
mod all_versions;
mod commands;
mod cost;
mod deaths;
mod estimator;
mod examples;
mod hosts;
mod initialising;
mod leases;
mod ledger;
mod letters;
mod library;
mod moving;
mod process;
mod pulling;
mod regions;
mod repairs;
mod restarts;
mod scene;
mod storm;
mod units;
