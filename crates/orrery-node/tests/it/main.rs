//! Integration tests of one node over in-memory storage: every module is one concern, all through `Node::execute`.

mod failing;
mod support;

mod basics;
mod expiry;
mod races;
mod resharding;
mod snapshots;
