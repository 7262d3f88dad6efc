//! Progress of long work: a bar on stderr when it is a terminal, and nothing otherwise.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Work measured in bytes when the total is known, else a running count.
pub fn of_bytes(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => styled(
            ProgressBar::new(total),
            "{bar:40} {bytes}/{total_bytes} {msg} {bytes_per_sec} eta {eta}",
        ),
        None => styled(ProgressBar::new_spinner(), "{spinner} {bytes} {msg} {bytes_per_sec}"),
    }
}

/// Work measured in items.
pub fn of_items(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => styled(
            ProgressBar::new(total),
            "{bar:40} {human_pos}/{human_len} items eta {eta}",
        ),
        None => styled(ProgressBar::new_spinner(), "{spinner} {human_pos} items"),
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the templates above are well formed");
    bar.set_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
