//! How a region's service behaves, as plain values.

use std::time::Duration;

use crate::limit::Rate;

/// Where another region's service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionUrl {
    pub region: String,
    pub url: String,
}

#[derive(Clone, Debug)]
pub struct PlatformSettings {
    /// The services of all regions that are known.
    pub regions: Vec<RegionUrl>,
    /// Anybody may ask for a token of any user.
    pub development: bool,
    /// Origins of pages that may call this service, besides those of this machine in development.
    pub origins: Vec<String>,
    /// Requests of one user, or of one address without a user.
    pub rate: Rate,
    pub body_bytes_max: usize,
    pub connections_max: usize,
    /// Open streams of notifications.
    pub listeners_max: usize,
    /// Those of one user: pages that are open at the same time.
    pub listeners_per_user_max: usize,
    /// How long a stream lasts. Its token is asked for again then, so that one that has ended does not go on listening.
    pub stream_max: Duration,
    /// From the first byte of a request to its answer.
    pub request_deadline: Duration,
    /// How long a client may leave what it was sent unread. Its connection is closed then, whatever it is used for.
    pub write_patience: Duration,
    /// How long requests under way may take when the service is told to stop.
    pub stop_deadline: Duration,
}

impl Default for PlatformSettings {
    fn default() -> PlatformSettings {
        PlatformSettings {
            regions: Vec::new(),
            development: false,
            origins: Vec::new(),
            rate: Rate {
                per_second: 50.0,
                burst: 200.0,
            },
            body_bytes_max: 1 << 20,
            connections_max: 1024,
            listeners_max: 512,
            listeners_per_user_max: 8,
            stream_max: Duration::from_secs(3600),
            request_deadline: Duration::from_secs(30),
            write_patience: Duration::from_secs(30),
            stop_deadline: Duration::from_secs(5),
        }
    }
}
