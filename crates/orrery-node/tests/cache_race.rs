//! The hot-item cache under every interleaving that a random scheduler finds: whoever has seen a version, or was told that
//! it is written, never sees an older one.
//!
//! The cache is the node's own source with its lock replaced by one that the scheduler controls. That the test can fail is
//! part of it: the last two tests break one rule each and must be caught. Tried by hand in `cache.rs`, and each caught by the
//! first test: filling while a key is barred, filling what has changed since, releasing without noting the LSN of the change,
//! and barring without removing the old version.

use std::sync::Arc;

use bytes::Bytes;
use orrery_model::{Etag, IndexingDirective, LogId, Lsn};
use orrery_partition::stored::StoredItem;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

#[path = "../src/cache.rs"]
#[expect(dead_code, reason = "forgetting a whole log is not part of the race")]
mod cache;

/// What `cache.rs` finds in place of the node's own module.
mod sync {
    pub use shuttle::sync::Mutex;
}

use cache::{CacheKey, HotCache};

const ITERATIONS: usize = 10_000;
const VERSIONS: u64 = 4;
const READS: usize = 4;

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Broken {
    Nothing,
    /// A reader claims that what it read is the newest there is.
    FillWithoutLsn,
    /// The writer bars the key only when the new version is visible already.
    BarAfterAppend,
    /// A reader of what others write, or of a snapshot, does not ask how old a hit is.
    HitWithoutLsn,
}

/// A view of one item whose version is the LSN it was written at.
struct World {
    cache: HotCache,
    visible: AtomicU64,
    /// The newest version that anyone was shown or told of.
    known: AtomicU64,
    broken: Broken,
}

fn key() -> CacheKey<'static> {
    CacheKey::Id {
        log: LogId(1),
        epk: &[1],
        id: "a",
    }
}

fn number() -> CacheKey<'static> {
    CacheKey::Number {
        log: LogId(1),
        number: 1 << 16,
    }
}

fn item(version: u64) -> Arc<StoredItem> {
    Arc::new(StoredItem {
        lsn: Lsn(version),
        index: 0,
        ts: 0,
        etag: Etag([0; 16]),
        ttl: None,
        directive: IndexingDirective::Default,
        id: Bytes::from_static(b"a"),
        body: Bytes::from_static(b"{}"),
    })
}

impl World {
    /// What `Writer::append` does; every second append fails and changes nothing.
    fn write(&self, version: u64, fails: bool) {
        if fails || self.broken != Broken::BarAfterAppend {
            self.cache.bar(key());
            self.cache.bar(number());
        }
        if fails {
            self.cache.release(key(), None, None);
            self.cache.release(number(), None, None);
            return;
        }
        self.visible.store(version, Ordering::SeqCst);
        if self.broken == Broken::BarAfterAppend {
            self.cache.bar(key());
            self.cache.bar(number());
        }
        self.cache.release(key(), Some(Lsn(version)), Some(item(version)));
        self.cache.release(number(), Some(Lsn(version)), None);
        self.known.fetch_max(version, Ordering::SeqCst);
    }

    /// What `Partition::find` does where another node writes the log: its changes become visible, and nobody says so.
    fn read_what_others_write(&self) {
        let known = self.known.load(Ordering::SeqCst);
        let head = self.visible.load(Ordering::SeqCst);
        let hot = match self.broken {
            Broken::HitWithoutLsn => self.cache.get(key()),
            _ => self.cache.get_at(key(), Lsn(head)),
        };
        let shown = match hot {
            Some(item) => item.lsn.0,
            None => {
                let snapshot = self.visible.load(Ordering::SeqCst);
                thread::yield_now();
                self.cache.fill(key(), item(snapshot), Lsn(snapshot));
                snapshot
            }
        };
        assert!(shown >= known, "version {shown} is older than {known}, which was known");
        self.known.fetch_max(shown, Ordering::SeqCst);
    }

    /// What `HotSnapshot` does: a snapshot never shows anything but the version it holds.
    fn read_snapshot(&self) {
        let snapshot = self.visible.load(Ordering::SeqCst);
        thread::yield_now();
        let hot = match self.broken {
            Broken::HitWithoutLsn => self.cache.get(number()),
            _ => self.cache.get_as_of(number(), Lsn(snapshot)),
        };
        let shown = hot.map_or(snapshot, |item| item.lsn.0);
        assert_eq!(shown, snapshot, "a snapshot at {snapshot} shows version {shown}");
        let lsn = match self.broken {
            Broken::FillWithoutLsn => Lsn(u64::MAX),
            _ => Lsn(snapshot),
        };
        thread::yield_now();
        self.cache.fill(number(), item(snapshot), lsn);
    }

    /// What `Partition::find` does.
    fn read(&self) {
        let known = self.known.load(Ordering::SeqCst);
        let shown = match self.cache.get(key()) {
            Some(item) => item.lsn.0,
            None => {
                let snapshot = self.visible.load(Ordering::SeqCst);
                thread::yield_now();
                let lsn = match self.broken {
                    Broken::FillWithoutLsn => Lsn(u64::MAX),
                    _ => Lsn(snapshot),
                };
                self.cache.fill(key(), item(snapshot), lsn);
                snapshot
            }
        };
        assert!(shown >= known, "version {shown} is older than {known}, which was known");
        self.known.fetch_max(shown, Ordering::SeqCst);
    }
}

/// Lets one world be changed by `write` while three readers `read`; gives it back when all have ended.
fn race(broken: Broken, write: fn(&World), read: fn(&World)) -> Arc<World> {
    let world = Arc::new(World {
        cache: HotCache::new(1 << 20),
        visible: AtomicU64::new(0),
        known: AtomicU64::new(0),
        broken,
    });
    let start = |run: fn(&World), n_times: usize| {
        let world = Arc::clone(&world);
        thread::spawn(move || (0..n_times).for_each(|_| run(&world)))
    };
    let writer = start(write, 1);
    let readers: Vec<_> = (0..3).map(|_| start(read, READS)).collect();
    writer.join().expect("the writer ends");
    for reader in readers {
        reader.join().expect("a reader ends");
    }
    world
}

fn write_all(world: &World) {
    for version in 1..=VERSIONS {
        world.write(version, true);
        world.write(version, false);
    }
}

fn check_all(run: impl Fn() + Copy + Send + Sync + 'static) {
    shuttle::check_random(run, ITERATIONS);
    shuttle::check_pct(run, ITERATIONS, 3);
}

fn check(broken: Broken) {
    check_all(move || {
        let world = race(broken, write_all, World::read);
        // When all is quiet the cache holds what is visible, or nothing.
        let cached = world.cache.get(key()).map(|item| item.lsn.0);
        assert!(
            cached.is_none_or(|version| version == VERSIONS),
            "the cache keeps {cached:?}, which is older than {VERSIONS}"
        );
    });
}

fn check_snapshots(broken: Broken) {
    check_all(move || drop(race(broken, write_all, World::read_snapshot)));
}

#[test]
fn a_snapshot_shows_the_versions_it_holds_wherever_they_come_from() {
    check_snapshots(Broken::Nothing);
}

#[test]
#[should_panic(expected = "shows version")]
fn a_hit_that_is_newer_than_the_snapshot_is_noticed() {
    check_snapshots(Broken::HitWithoutLsn);
}

#[test]
#[should_panic(expected = "shows version")]
fn what_was_read_before_a_change_and_counts_after_it_is_noticed() {
    check_snapshots(Broken::FillWithoutLsn);
}

fn check_what_others_write(broken: Broken) {
    let moves = |world: &World| (1..=VERSIONS).for_each(|version| world.visible.store(version, Ordering::SeqCst));
    shuttle::check_random(
        move || drop(race(broken, moves, World::read_what_others_write)),
        ITERATIONS,
    );
}

#[test]
fn nobody_sees_an_older_version_than_is_known_of_what_others_write() {
    check_what_others_write(Broken::Nothing);
}

#[test]
#[should_panic(expected = "is older than")]
fn a_hit_that_does_not_say_how_old_it_is_would_be_caught() {
    check_what_others_write(Broken::HitWithoutLsn);
}

#[test]
fn nobody_sees_an_older_version_than_is_known() {
    check(Broken::Nothing);
}

#[test]
#[should_panic(expected = "is older than")]
fn a_fill_that_does_not_say_how_old_it_is_would_be_caught() {
    check(Broken::FillWithoutLsn);
}

#[test]
#[should_panic(expected = "is older than")]
fn a_bar_that_comes_too_late_would_be_caught() {
    check(Broken::BarAfterAppend);
}
