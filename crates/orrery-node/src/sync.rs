//! The lock the hot-item cache uses. Its race test swaps this module for one whose lock explores interleavings.

pub use std::sync::Mutex;
