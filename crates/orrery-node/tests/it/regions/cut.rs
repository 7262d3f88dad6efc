//! A link that stays cut: what replication holds meanwhile, and that everything arrives afterwards.

use super::*;

/// Held at most per log and reader: parcels of a quarter of a megabyte, as many as may be under way.
const UNDER_WAY_BYTES_MAX: usize = 64 * 256 * 1024;
const MINUTES: usize = 10;

/// As many as a busy account has in a soak, a share of them otherwise.
fn writes_per_second() -> usize {
    if std::env::var_os("ORRERY_SOAK").is_some() {
        1000
    } else {
        20
    }
}

impl Regions {
    /// Bytes on their way from the writer to a region.
    fn under_way(&self, to: &str) -> usize {
        let loads = self.fleet.link_loads();
        let mut ours = loads.iter().filter(|(from, known, _)| from == WEST && known == to);
        ours.next().map_or(0, |(.., n_bytes)| *n_bytes)
    }

    /// Log by log, with the hash of everything that led there.
    async fn all_logs_equal(&self) {
        for name in [NORTH, ASIA] {
            until(|| async { self.at(name).node.positions() == self.at(WEST).node.positions() }).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_without_a_link_hold_no_more_than_one_and_everything_arrives_when_it_heals() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.all_equal().await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    // The other reader hears nothing either, but what is on its way to it is kept.
    regions.fleet.set_link(WEST, NORTH, paused()).unwrap();
    let (writer, mut n) = (regions.writer(), 0);
    let mut held = Vec::new();
    for _minute in 0..MINUTES {
        for _second in 0..60 {
            fill(&writer, n..n + writes_per_second()).await;
            n += writes_per_second();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        held.push((regions.under_way(ASIA), regions.under_way(NORTH)));
    }
    let most_lacking = regions
        .fleet
        .regions()
        .iter()
        .map(|region| region.lag.transactions)
        .max();
    assert_eq!(most_lacking, Some(n as u64), "nothing got through");
    assert!(held.iter().all(|(to_asia, _)| *to_asia == 0), "{held:?}");
    assert!(
        held.iter().all(|(_, to_north)| *to_north <= UNDER_WAY_BYTES_MAX),
        "{held:?}"
    );
    assert_eq!(held.first(), held.last(), "what is held does not grow with the cut");

    regions.set_links(&LinkSettings::default());
    regions.all_logs_equal().await;
    regions.all_equal().await;
    assert_eq!(contents(&regions.at(ASIA)).await.len(), n);
    until(|| async { regions.under_way(ASIA) + regions.under_way(NORTH) == 0 }).await;
}

/// Distance and room as between continents.
fn far() -> LinkSettings {
    LinkSettings {
        latency: Duration::from_millis(100),
        bytes_per_second: Some(8 << 20),
        ..LinkSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_pause_is_caught_up_in_a_small_part_of_it_while_writes_go_on() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.set_links(&far());
    regions.all_equal().await;
    let away = LinkSettings { paused: true, ..far() };
    regions.fleet.set_link(WEST, ASIA, away).unwrap();
    let (writer, mut n) = (regions.writer(), 0);
    let per_second = (writes_per_second() / 10).max(1);
    let mut write_for_a_second = async || {
        fill(&writer, n..n + per_second).await;
        n += per_second;
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    for _second in 0..3600 {
        write_for_a_second().await;
    }
    let lacking = || {
        let known = regions.fleet.regions();
        let asia = known.iter().find(|region| region.name == ASIA);
        asia.map_or(u64::MAX, |region| region.lag.transactions)
    };
    assert!(lacking() >= 3600 * per_second as u64, "nothing got through");

    regions.fleet.set_link(WEST, ASIA, far()).unwrap();
    let mut n_seconds = 0;
    // On its way is at most what was written during a round trip.
    while lacking() > per_second as u64 {
        write_for_a_second().await;
        n_seconds += 1;
        assert!(n_seconds < 60, "{} are still lacking after a minute", lacking());
    }
    regions.all_logs_equal().await;
    regions.all_equal().await;
}
