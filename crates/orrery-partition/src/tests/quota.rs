//! Logical partitions that are full: found by their sizes, and what may still be done in them.

use orrery_model::Status;
use orrery_model::etag::Precondition;

use super::{Bench, definition};
use crate::command::{Action, Command, Target};
use crate::quota::FullKeys;

const LIMIT: u64 = 3_000;

fn create(bench: &mut Bench, key: &str, id: &str, n_letters: usize) -> orrery_model::Result<()> {
    let text = format!(r#""text":"{}""#, "x".repeat(n_letters));
    let draft = bench.draft(key, id, &text)?;
    let step = bench.step(key, Precondition::None, Action::Create(draft));
    bench.run(&Command::Item(step)).map(drop)
}

fn replace(bench: &mut Bench, key: &str, id: &str, n_letters: usize) -> orrery_model::Result<()> {
    let text = format!(r#""text":"{}""#, "x".repeat(n_letters));
    let draft = bench.draft(key, id, &text)?;
    let step = bench.step(key, Precondition::None, Action::Replace(Target::Id(id.into()), draft));
    bench.run(&Command::Item(step)).map(drop)
}

fn delete(bench: &mut Bench, key: &str, id: &str) -> orrery_model::Result<()> {
    let step = bench.step(key, Precondition::None, Action::Delete(Target::Id(id.into())));
    bench.run(&Command::Item(step)).map(drop)
}

fn look(bench: &mut Bench) {
    bench.full = FullKeys::count(&bench.view, bench.form(), LIMIT).unwrap();
}

#[test]
fn a_full_logical_partition_may_shrink_and_not_grow_and_its_neighbours_go_on() {
    let mut bench = Bench::new(definition(""));
    for id in ["1", "2", "3"] {
        create(&mut bench, "large", id, 1_000).unwrap();
        create(&mut bench, "small", id, 100).unwrap();
    }
    look(&mut bench);
    for refused in [
        create(&mut bench, "large", "4", 1),
        replace(&mut bench, "large", "1", 1_001),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.status(), Status::LOGICAL_PARTITION_FULL);
        assert!(
            error.message().starts_with("Partition key reached maximum size of "),
            "{error}"
        );
    }
    create(&mut bench, "small", "4", 100).unwrap();
    replace(&mut bench, "large", "1", 1_000).unwrap();
    replace(&mut bench, "large", "1", 10).unwrap();
    delete(&mut bench, "large", "2").unwrap();
    look(&mut bench);
    create(&mut bench, "large", "4", 1).unwrap();
}

#[test]
fn sizes_are_those_of_each_key_for_keys_of_every_form() {
    for version in [1, 2] {
        let extra = format!(r#","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":{version}}}"#);
        let mut bench = Bench::new(definition(&extra));
        for number in 0..40 {
            create(&mut bench, &format!("key-{}", number % 8), &number.to_string(), 300).unwrap();
        }
        create(&mut bench, "key-3", "last", 1_500).unwrap();
        look(&mut bench);
        for number in 0..8 {
            let refused = create(&mut bench, &format!("key-{number}"), "more", 1).is_err();
            assert_eq!(refused, number == 3, "key-{number}, hash version {version}");
        }
    }
}
