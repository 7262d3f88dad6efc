//! The `orrery` binary as its users meet it: real processes, free ports, directories of their own.
//!
//! `serving` is about starting and stopping, `settings` about configuration, `accounts` about several accounts at once, `damage` about files that are not what was written, `partitions`,
//! `platform`, `regions`, `simulation`, `feed`, `sql` and `up` about the commands of that name, `outages` about the platform while regions are gone,
//! `transfer` about import and export, `seed` about data that is there from the start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounts;
mod damage;
mod feed;
mod outages;
mod partitions;
mod platform;
mod regions;
mod seed;
mod service;
mod serving;
mod settings;
mod simulation;
mod sql;
mod support;
mod transfer;
mod up;
