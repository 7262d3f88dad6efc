//! A fixed story of appends, seeds, drops, flushes and trims is told until the power goes at its first change of the disk,
//! its second, and so on. Whatever was acknowledged by then must be there afterwards, and the store must go on.
//!
//! A normal run tries some of the cuts; `ORRERY_SOAK=1` tries all.

use orrery_model::{LogId, Position};
use orrery_partition::storage::{Result, Store};

use crate::disk::{Disk, Unsynced};
use crate::rig::{History, Rig, open, small};
use crate::support::{bytes, write};

const LOGS: [LogId; 3] = [LogId(1), LogId(2), LogId(3)];
const DROPPED: LogId = LogId(8);
const SEEDED: LogId = LogId(9);

/// What the story had reached.
#[derive(Default)]
struct Told {
    history: History,
    is_dropped: bool,
    seeded: Option<Position>,
}

async fn tell(rig: &Rig, told: &mut Told) -> Result<()> {
    let mut logs = Vec::new();
    for id in LOGS {
        logs.push(rig.store.open(id, orrery_partition::storage::Role::Follow).await?);
    }
    let filler = "x".repeat(200);
    for round in 0..12 {
        for (number, log) in logs.iter().enumerate() {
            let text = format!("{round} {filler}");
            let keys = [format!("key {}", (round + number) % 5), format!("other {}", round % 3)];
            let one: &[_] = &[(keys[0].as_str(), Some(text.as_str()))];
            let two: &[_] = &[
                (keys[1].as_str(), (round % 4 != 3).then_some("short")),
                (keys[0].as_str(), None),
            ];
            let writes = [one, two, one];
            told.history
                .append(log.as_ref(), &writes[..1 + (round + number) % 3])
                .await?;
        }
        match round {
            3 => tell_of_dropping(rig, told).await?,
            5 | 9 => rig.store.checkpoint().await?,
            6 => tell_of_seeding(rig, told).await?,
            7 => drop(logs[0].trim(logs[0].head().lsn).await?),
            _ => {}
        }
    }
    Ok(())
}

async fn tell_of_dropping(rig: &Rig, told: &mut Told) -> Result<()> {
    let log = rig.store.open(DROPPED, orrery_partition::storage::Role::Follow).await?;
    write(log.as_ref(), &[("a", Some("one"))]).await?;
    rig.store.drop_log(DROPPED).await?;
    told.is_dropped = true;
    Ok(())
}

async fn tell_of_seeding(rig: &Rig, told: &mut Told) -> Result<()> {
    let mut seed = rig.store.seed(SEEDED).await?;
    seed.write(
        (0..50)
            .map(|number| (bytes(&format!("{number}")), Some(bytes("seeded"))))
            .collect(),
    )
    .await?;
    let position = Position {
        lsn: orrery_model::Lsn(77),
        ..Position::default()
    };
    seed.finish(position).await?;
    told.seeded = Some(position);
    Ok(())
}

/// Opens the store on what a cut has left and checks everything that was acknowledged.
async fn check_after(rig: Rig, told: &Told, disk: Disk) {
    let Rig { dir, store, .. } = rig;
    drop(store);
    let store = open(dir.path(), small(), &disk).unwrap();
    told.history.check(store.as_ref()).await;
    let list = store.list().unwrap();
    let seeded = list.iter().find(|info| info.log == SEEDED).map(|info| info.position);
    assert!(told.seeded.is_none() || seeded == told.seeded, "the seed is there");
    assert!(
        !told.is_dropped || list.iter().all(|info| info.log != DROPPED),
        "the dropped log is gone"
    );
    if seeded.is_some() {
        let log = store
            .open(SEEDED, orrery_partition::storage::Role::Follow)
            .await
            .unwrap();
        assert_eq!(
            crate::support::content(log.snapshot().unwrap().as_ref()).len(),
            50,
            "a seed is never there in part"
        );
    }
    let log = store
        .open(LOGS[0], orrery_partition::storage::Role::Follow)
        .await
        .unwrap();
    write(log.as_ref(), &[("after", Some("the cut"))]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let again = open(dir.path(), small(), &disk).unwrap();
    let log = again
        .open(LOGS[0], orrery_partition::storage::Role::Follow)
        .await
        .unwrap();
    assert_eq!(crate::support::value(log.as_ref(), "after").as_deref(), Some("the cut"));
}

/// Tells the story with the power going off after `n` changes; answers whether it was told to its end.
async fn cut_at(n: usize, unsynced: Unsynced) -> bool {
    let rig = Rig::new(small());
    rig.disk.cut_power_after(n);
    let mut told = Told::default();
    let is_done = tell(&rig, &mut told).await.is_ok();
    let disk = rig.disk.after_power_cut(unsynced);
    check_after(rig, &told, disk).await;
    is_done
}

/// How many cuts to leave out after each one tried.
fn stride() -> usize {
    if std::env::var_os("ORRERY_SOAK").is_some() {
        1
    } else {
        17
    }
}

async fn cut_everywhere(unsynced: Unsynced, first: usize) {
    let mut n = first;
    while !cut_at(n, unsynced).await {
        n += stride();
    }
    assert!(n > 60, "the story changes the disk often enough to be worth cutting");
}

#[tokio::test]
async fn acknowledged_appends_survive_when_everything_unsynced_is_lost() {
    cut_everywhere(Unsynced::Lost, 0).await;
}

#[tokio::test]
async fn acknowledged_appends_survive_when_half_of_the_unsynced_is_lost() {
    cut_everywhere(Unsynced::Torn, 4).await;
}

#[tokio::test]
async fn acknowledged_appends_survive_when_unsynced_pages_arrive_out_of_order() {
    cut_everywhere(Unsynced::Holed, 8).await;
}

#[tokio::test]
async fn acknowledged_appends_survive_when_only_the_process_dies() {
    cut_everywhere(Unsynced::Kept, 12).await;
}
