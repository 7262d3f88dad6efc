//! (under construction)

pub mod wire;
