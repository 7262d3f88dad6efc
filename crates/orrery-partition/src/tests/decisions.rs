//! What commands do, as small stories: one line per command, with the statuses it must give.
//!
//! ```text
//! create a {"n":1} => 201            an item of partition key p; `@q` after the id names another key
//! replace a if-match:stale => 412    current, stale or * ; also if-none-match
//! replace a as:b => 200 rename put   by an item of another id
//! batch create b | delete a => 201 204
//! advance 10                         seconds pass
//! ```
//! After the statuses may come what the command's transaction does: `put`, `delete`, `expire`, in order.

use std::collections::HashMap;
use std::ops::Bound;

use orrery_model::etag::Precondition;
use orrery_model::json;
use orrery_model::log::Operation;
use orrery_model::patch::Patch;
use orrery_model::{PartitionId, Status};

use super::{Bench, definition};
use crate::command::{Action, Command, Decision, Effect, Step, Target};
use crate::expiry::is_expired;
use crate::keys::{self, KeySpace};
use crate::state::PartitionState;
use crate::storage::View as _;
use crate::stored::StoredItem;

mod uniqueness;

const STALE: &str = "\"00000000-0000-0000-0000-000000000000\"";

/// Plays a story on a container with these extra settings.
fn check(extra: &str, story: &str) {
    let mut player = Player {
        bench: Bench::new(definition(extra)),
        etags: HashMap::new(),
        n_definitions: 1,
    };
    for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (said, expected) = line
            .split_once("=>")
            .map_or((line, ""), |(said, rest)| (said.trim(), rest.trim()));
        let seen = player.play(said);
        assert_eq!(seen, expected, "{line}");
    }
}

struct Player {
    bench: Bench,
    /// The last tag of every item, by key and id.
    etags: HashMap<(String, String), String>,
    n_definitions: u64,
}

impl Player {
    fn play(&mut self, said: &str) -> String {
        let (verb, rest) = said.split_once(' ').unwrap_or((said, ""));
        let command = match verb {
            "advance" => {
                self.bench.now.0 += rest.parse::<u64>().unwrap() * 1000;
                return String::new();
            }
            "items" => return self.items(),
            "batch" => {
                let steps: Result<Vec<Step>, _> = rest.split('|').map(|one| self.step(one.trim())).collect();
                match steps {
                    Ok(steps) => Command::Batch(steps),
                    Err(status) => return status.code.to_string(),
                }
            }
            "delete-key" => Command::DeleteKey {
                epk: self.bench.epk(rest.split(' ').next().unwrap()),
                limit: rest.split(' ').nth(1).map_or(100, |limit| limit.parse().unwrap()),
            },
            "purge" => Command::Purge {
                candidates: self.all_items(),
            },
            "define" => {
                self.n_definitions += 1;
                Command::Define {
                    version: self.n_definitions,
                    definition: definition(rest).to_stored().into(),
                }
            }
            "seal" => Command::Seal {
                children: vec![PartitionId(8)],
            },
            _ => match self.step(said) {
                Ok(step) => Command::Item(step),
                Err(status) => return status.code.to_string(),
            },
        };
        let before = self.bench.log.len();
        match self.bench.run(&command) {
            Err(error) => error.status().code.to_string(),
            Ok(decision) => {
                let mut seen = self.statuses(&command, &decision);
                let transactions = &self.bench.log[before..];
                assert!(transactions.len() <= 1, "one command, one transaction");
                let operations = transactions.iter().flat_map(|transaction| &transaction.operations);
                seen.extend(operations.map(|operation| operation_name(operation).to_owned()));
                seen.join(" ")
            }
        }
    }

    /// One item operation: verb, id, `@key`, `{fields}` or `[patch]`, condition.
    fn step(&mut self, said: &str) -> Result<Step, Status> {
        let (said, json_text) = match said.find(['{', '[']) {
            Some(at) => (said[..at].trim(), &said[at..]),
            None => (said, ""),
        };
        let mut words = said.split_whitespace();
        let (verb, id) = (words.next().unwrap(), words.next().unwrap_or(""));
        let (mut key, mut condition, mut new_id) = ("p", Precondition::None, id);
        for word in words {
            let (name, tag) = word.split_once(':').unwrap_or((word, ""));
            let current = self
                .etags
                .get(&(key.to_owned(), id.to_owned()))
                .cloned()
                .unwrap_or_default();
            let tag = match tag {
                "current" => current,
                "stale" => STALE.to_owned(),
                other => other.to_owned(),
            };
            match name {
                "if-match" => condition = Precondition::IfMatch(tag),
                "if-none-match" => condition = Precondition::IfNoneMatch(tag),
                "as" => new_id = word.strip_prefix("as:").expect("the new id"),
                other => key = other.strip_prefix('@').expect("a key or a condition"),
            }
        }
        let fields = json_text.trim_start_matches('{').trim_end_matches('}');
        let draft = |id| self.bench.draft(key, id, fields).map_err(|error| error.status());
        let target = Target::Id(id.to_owned());
        let action = match verb {
            "create" => Action::Create(draft(id)?),
            "upsert" => Action::Upsert(draft(id)?),
            "read" => Action::Read(target),
            "replace" => Action::Replace(target, draft(new_id)?),
            "delete" => Action::Delete(target),
            "patch" => {
                let body = json::parse_value(json_text.as_bytes()).unwrap();
                Action::Patch(target, Patch::parse(&body).map_err(|error| error.status())?)
            }
            other => panic!("{other}?"),
        };
        Ok(self.bench.step(key, condition, action))
    }

    fn statuses(&mut self, command: &Command, decision: &Decision) -> Vec<String> {
        let steps: &[Step] = match command {
            Command::Item(step) => std::slice::from_ref(step),
            Command::Batch(steps) => steps,
            _ => &[],
        };
        let mut statuses = Vec::new();
        for (step, result) in steps.iter().zip(&decision.results) {
            statuses.push(match &result.outcome {
                Err(error) => error.status().code.to_string(),
                Ok(outcome) => {
                    self.remember(step, outcome.etag.map(|etag| etag.to_string()));
                    let status = match outcome.effect {
                        Effect::Created => 201,
                        Effect::Current => 200,
                        Effect::Deleted => 204,
                        Effect::NotModified => 304,
                    };
                    status.to_string()
                }
            });
        }
        if decision.more {
            statuses.push("more".to_owned());
        }
        statuses
    }

    fn remember(&mut self, step: &Step, etag: Option<String>) {
        let id = match &step.action {
            Action::Create(draft) | Action::Upsert(draft) | Action::Replace(_, draft) => draft.id.clone(),
            Action::Read(Target::Id(id)) | Action::Patch(Target::Id(id), _) | Action::Delete(Target::Id(id)) => {
                id.clone()
            }
            other => panic!("{other:?}"),
        };
        let key = step.key.to_string().trim_matches(['[', ']', '"']).to_owned();
        if let Some(etag) = etag {
            self.etags.insert((key, id), etag);
        }
    }

    fn all_items(&self) -> Vec<(orrery_model::Epk, u64)> {
        let (from, to) = keys::bounds(KeySpace::Item);
        let items = self
            .bench
            .view
            .scan(Bound::Included(&from), Bound::Excluded(&to), false);
        items
            .map(|entry| keys::read_item(self.bench.form(), &entry.unwrap().0).unwrap())
            .collect()
    }

    /// Ids in the order of their creation, those in brackets absent because their time has run out.
    fn items(&self) -> String {
        let (from, to) = keys::bounds(KeySpace::Item);
        let mut found: Vec<(u64, String)> = Vec::new();
        for entry in self
            .bench
            .view
            .scan(Bound::Included(&from), Bound::Excluded(&to), false)
        {
            let (key, value) = entry.unwrap();
            let item = StoredItem::decode(&value).unwrap();
            let id = String::from_utf8(item.id.to_vec()).unwrap();
            let expired = is_expired(&self.bench.definition, &item, self.bench.now);
            let number = keys::read_item(self.bench.form(), &key).unwrap().1;
            found.push((number, if expired { format!("({id})") } else { id }));
        }
        found.sort();
        let state = PartitionState::load(&self.bench.view).unwrap().unwrap();
        assert_eq!(state.n_items, found.len() as u64, "the count of items");
        found.into_iter().map(|(_, id)| id).collect::<Vec<_>>().join(" ")
    }
}

fn operation_name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Put(_) => "put",
        Operation::Delete(delete) if delete.expired => "expire",
        Operation::Delete(_) => "delete",
        Operation::Renamed(_) => "rename",
        Operation::Defined { .. } => "defined",
        Operation::Sealed { .. } => "sealed",
        Operation::HistoryTrimmed { .. } => "trimmed",
        _ => "other",
    }
}

const UNIQUE: &str = r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]},{"paths":["/a","/b"]}]}"#;

#[test]
fn an_id_is_taken_once_per_partition_key() {
    check(
        "",
        r#"
        create a => 201 put
        create a => 409
        create a @q => 201 put
        create b => 201 put
        items => a a b
        "#,
    );
}

#[test]
fn what_is_not_there_is_not_found() {
    check(
        "",
        r#"
        read a => 404
        replace a => 404
        delete a => 404
        patch a [{"op":"add","path":"/n","value":1}] => 404
        create a => 201 put
        read a @q => 404
        delete a => 204 delete
        read a => 404
        delete a => 404
        create a => 201 put
        "#,
    );
}

#[test]
fn items_that_make_no_sense_are_bad_requests() {
    check(
        "",
        r#"
        create a {"ttl":0} => 400
        create a {"ttl":null} => 400
        create a {"ttl":"x"} => 400
        create a {"ttl":1.5} => 400
        create a => 201 put
        patch a [{"op":"set","path":"/pk","value":"q"}] => 400
        patch a [{"op":"set","path":"/id","value":"b"}] => 400
        patch a [{"op":"replace","path":"/missing","value":1}] => 400
        read a => 200
        "#,
    );
}

#[test]
fn a_write_with_a_condition_happens_only_if_it_holds() {
    check(
        "",
        r#"
        create a => 201 put
        replace a if-match:stale => 412
        delete a if-match:stale => 412
        patch a if-match:stale [{"op":"add","path":"/n","value":1}] => 412
        upsert a if-match:stale => 412
        replace a if-match:current => 200 put
        replace a if-match:* => 200 put
        patch a if-match:current [{"op":"add","path":"/n","value":1}] => 200 put
        upsert a if-match:current => 200 put
        delete a if-match:current => 204 delete
        delete a if-match:current => 404
        "#,
    );
}

#[test]
fn a_read_with_a_condition_says_what_it_found() {
    check(
        "",
        r#"
        create a => 201 put
        batch read a if-none-match:current => 304
        batch read a if-none-match:* => 304
        batch read a if-none-match:stale => 200
        batch read a if-match:current => 200
        batch read a if-match:stale => 412
        "#,
    );
}

#[test]
fn a_replace_may_give_an_item_another_id() {
    check(
        UNIQUE,
        r#"
        create a {"email":"x","a":1} => 201 put
        create b {"email":"y","a":2} => 201 put
        replace a as:b {"email":"x","a":1} => 409
        replace a as:c if-match:stale {"email":"x","a":1} => 412
        replace a as:c {"email":"y","a":1} => 409
        replace a as:c {"email":"x","a":1} => 200 rename put
        items => c b
        read a => 404
        read c => 200
        replace a => 404
        create a {"email":"z","a":3} => 201 put
        items => c b a
        delete c => 204 delete
        read a => 200
        batch replace a as:d {"email":"z","a":3} | create a {"email":"w","a":4} | read d => 200 201 200 rename put put
        batch replace d as:e {"email":"z","a":3} | read d => 424 404
        items => b d a
        "#,
    );
}

#[test]
fn an_upsert_creates_or_replaces() {
    check(
        "",
        r#"
        upsert a => 201 put
        upsert a => 200 put
        delete a => 204 delete
        upsert a => 201 put
        items => a
        "#,
    );
}

#[test]
fn a_patch_with_a_filter_happens_only_if_the_item_passes() {
    check(
        "",
        r#"
        create a {"n":1} => 201 put
        patch a {"condition":"FROM c WHERE c.n = 2","operations":[{"op":"incr","path":"/n","value":1}]} => 412
        patch a {"condition":"FROM c WHERE c.n = 1","operations":[{"op":"incr","path":"/n","value":1}]} => 200 put
        patch a {"condition":"FROM c WHERE c.n = 1","operations":[{"op":"incr","path":"/n","value":1}]} => 412
        patch a {"condition":"FROM c WHERE","operations":[{"op":"incr","path":"/n","value":1}]} => 400
        "#,
    );
}

#[test]
fn a_filter_sees_the_time_of_its_patch() {
    check(
        "",
        r#"
        create a {"due":1700000005000} => 201 put
        patch a {"condition":"FROM c WHERE c.due < GetCurrentTimestamp()","operations":[{"op":"set","path":"/n","value":1}]} => 412
        advance 10
        patch a {"condition":"FROM c WHERE c.due < GetCurrentTimestamp()","operations":[{"op":"set","path":"/n","value":1}]} => 200 put
        "#,
    );
}

#[test]
fn a_filter_that_takes_too_much_is_refused_and_so_are_many_that_do_together() {
    let list = (0..300).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let patch = |joins: &str| {
        format!(
            r#"patch a {{"condition":"FROM c JOIN x IN c.list JOIN y IN c.list {joins} WHERE x + y >= 598","operations":[{{"op":"set","path":"/n","value":1}}]}}"#
        )
    };
    let (one, many) = (patch(""), vec![patch(""); 20].join(" | "));
    let mut player = Player {
        bench: Bench::new(definition("")),
        etags: HashMap::new(),
        n_definitions: 1,
    };
    assert_eq!(player.play(&format!(r#"create a {{"list":[{list}]}}"#)), "201 put");
    assert_eq!(player.play(&one), "200 put");
    assert_eq!(
        player.play(&patch("JOIN z IN c.list JOIN w IN c.list").replace("598", "599")),
        "400"
    );
    let together = player.play(&format!("batch {many}"));
    assert!(together.starts_with("424 ") && together.contains(" 400 "), "{together}");
}

#[test]
fn a_batch_gives_and_writes_no_more_than_fits_into_one() {
    let text = "a".repeat(1_900_000);
    let mut player = Player {
        bench: Bench::new(definition("")),
        etags: HashMap::new(),
        n_definitions: 1,
    };
    assert_eq!(player.play(&format!(r#"create a {{"text":"{text}"}}"#)), "201 put");
    let patch = r#"patch a [{"op":"set","path":"/n","value":1}]"#;
    for (step, written) in [("read a", ""), (patch, " put")] {
        let of = |n: usize| format!("batch {}", vec![step; n].join(" | "));
        let whole = ["200"; 8].join(" ") + &written.repeat(8);
        assert_eq!(player.play(&of(8)), whole, "{step}");
        let refused = player.play(&of(20));
        let statuses: Vec<&str> = refused.split(' ').collect();
        assert_eq!(
            statuses.iter().filter(|status| **status == "413").count(),
            1,
            "{refused}"
        );
        assert_eq!(
            statuses.iter().filter(|status| **status == "424").count(),
            19,
            "{refused}"
        );
    }
    assert_eq!(player.items(), "a");
}

#[test]
fn a_batch_happens_as_a_whole_or_not_at_all() {
    check(
        "",
        r#"
        create a => 201 put
        batch create b | replace a | delete a => 201 200 204 put put delete
        items => b
        batch create c | create b | create d => 424 409 424
        batch delete b | replace b => 424 404
        batch replace b if-match:stale | create c => 412 424
        items => b
        batch create c | read c | delete c | create c => 201 200 204 201 put delete put
        items => b c
        batch read b | read missing => 424 404
        batch upsert b | upsert e => 200 201 put put
        "#,
    );
}

#[test]
fn steps_of_a_batch_see_the_versions_before_them() {
    check(
        "",
        r#"
        create a => 201 put
        batch replace a if-match:current | replace a if-match:current => 424 412
        batch patch a [{"op":"add","path":"/n","value":1}] | patch a [{"op":"incr","path":"/n","value":1}] => 200 200 put put
        patch a {"condition":"FROM c WHERE c.n = 2","operations":[{"op":"remove","path":"/n"}]} => 200 put
        "#,
    );
}

#[test]
fn an_expired_item_is_absent_for_every_command() {
    check(
        r#","defaultTtl":10"#,
        r#"
        create a => 201 put
        create b {"ttl":-1} => 201 put
        create c {"ttl":20} => 201 put
        advance 9
        items => a b c
        advance 1
        items => (a) b c
        read a => 404
        replace a => 404
        delete a => 404
        patch a [{"op":"add","path":"/n","value":1}] => 404
        create b => 409
        advance 10
        items => (a) b (c)
        "#,
    );
}

#[test]
fn taking_the_id_of_an_expired_item_is_one_transaction() {
    check(
        r#","defaultTtl":10"#,
        r#"
        create a => 201 put
        advance 10
        create a => 201 expire put
        items => a
        advance 10
        upsert a => 201 expire put
        advance 10
        batch create a | replace a if-match:current => 424 412
        items => (a)
        batch create a | replace a => 201 200 expire put put
        advance 10
        create b => 201 put
        replace b as:a => 200 expire rename put
        items => a
        "#,
    );
}

#[test]
fn purging_removes_what_has_expired_and_nothing_else() {
    check(
        r#","defaultTtl":10"#,
        r#"
        create a => 201 put
        create b {"ttl":5} => 201 put
        create c {"ttl":-1} => 201 put
        purge =>
        advance 5
        purge => expire
        items => a c
        replace a => 200 put
        advance 9
        purge =>
        advance 1
        purge => expire
        items => c
        "#,
    );
}

#[test]
fn a_new_definition_decides_what_comes_after_it() {
    check(
        "",
        r#"
        create a => 201 put
        advance 100
        define ,"defaultTtl":100 => defined
        read a => 404
        define ,"defaultTtl":101 => defined
        read a => 200
        define  => defined
        advance 1000
        read a => 200
        "#,
    );
}

#[test]
fn a_logical_partition_is_deleted_in_bounded_transactions() {
    check(
        "",
        r#"
        create a => 201 put
        create b => 201 put
        create c => 201 put
        create x @q => 201 put
        delete-key p 2 => more delete delete
        delete-key p 2 => delete
        delete-key p 2 =>
        items => x
        "#,
    );
}

#[test]
fn after_the_seal_everything_is_gone() {
    check(
        "",
        r#"
        create a => 201 put
        seal => sealed
        create b => 410
        read a => 410
        batch read a => 410
        delete-key p => 410
        purge => 410
        define  => 410
        seal => 410
        items => a
        "#,
    );
}

#[test]
fn numbers_rise_and_are_never_given_twice() {
    let mut bench = Bench::new(definition(""));
    let mut highest = 0;
    for round in 0..50 {
        let draft = bench.draft("p", "a", "").unwrap();
        let create = Command::Item(bench.step("p", Precondition::None, Action::Create(draft)));
        let decision = bench.run(&create).unwrap();
        let [Operation::Put(put)] = decision.operations.as_slice() else {
            panic!("{decision:?}")
        };
        assert!(put.number > highest, "round {round}");
        assert_eq!(put.number & 0xFFFF, 7, "the partition's own numbers");
        highest = put.number;
        let delete = Command::Item(bench.step("p", Precondition::None, Action::Delete(Target::Number(highest))));
        bench.run(&delete).unwrap();
    }
}
