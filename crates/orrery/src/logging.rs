//! Logs go to stderr; stdout is for what was asked for. `ORRERY_LOG` chooses levels (`debug`, `orrery_node=trace,info`),
//! `ORRERY_LOG_FORMAT=json` one JSON object per line.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The SDK tells of every request it repeats, which the platform's accounts give it reason for while a region is down; the
/// client of NATS tells of every connection.
const LEVELS: &str = "info,async_nats=warn,azure_core=error,azure_data_cosmos=error,azure_data_cosmos_driver=error";

pub fn start() {
    let levels = std::env::var("ORRERY_LOG").unwrap_or_else(|_| LEVELS.to_owned());
    let targets: Targets = levels
        .parse()
        .unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let json = std::env::var("ORRERY_LOG_FORMAT").is_ok_and(|format| format.eq_ignore_ascii_case("json"));
    let plain = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    // A second start, as in tests, keeps the first.
    let _ = if json {
        registry.with(plain.json()).try_init()
    } else {
        registry.with(plain.with_ansi(false)).try_init()
    };
}
