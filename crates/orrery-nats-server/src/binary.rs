//! Where the `nats-server` program is.

use std::io;
use std::path::{Path, PathBuf};

/// `$NATS_SERVER`, or `.tools/bin/nats-server` in a directory above this crate, where `make` puts it, or the one on the path.
pub(crate) fn find() -> io::Result<PathBuf> {
    if let Some(named) = std::env::var_os("NATS_SERVER") {
        return Ok(named.into());
    }
    let installed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|directory| directory.join(".tools/bin/nats-server"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("nats-server"));
    installed
        .chain(on_path)
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| io::Error::other("nats-server is not installed: `make nats-server` installs it"))
}
