//! Integration tests of one node over in-memory storage: every module is one concern, all through `Node::execute`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

mod failing;
mod support;

mod basics;
mod batches;
mod by_hand;
mod expiry;
mod feed;
mod functions;
mod indexing;
mod paging;
mod queries;
mod quota;
mod races;
mod regions;
mod reopening;
mod resharding;
mod snapshots;
mod throughput;
