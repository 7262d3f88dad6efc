//! Automation of this repository.

mod tidy;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(),
        _ => bail!("usage: cargo run -p xtask -- tidy"),
    }
}
