//! A reader of all versions and deletes who follows the server through its deaths.
//!
//! Every change names the position of the version before it, so a change that went missing or came twice shows at the next
//! one of the same item; at the end the reader's copy is what the server holds.

use std::collections::HashMap;
use std::io;

use serde_json::Value;

use crate::client::Client;

/// What the reader has made of the changes so far, and where it goes on.
#[derive(Default)]
pub struct Follower {
    token: Option<String>,
    /// Position and version of every item.
    items: HashMap<(String, String), (u64, u64)>,
    /// The last version of every key: its writer counts up.
    last: HashMap<String, u64>,
    pub n_changes: usize,
}

impl Follower {
    /// Reads one page; `false` when there was nothing new.
    pub fn read(&mut self, client: &mut Client) -> io::Result<bool> {
        let page = client.changes(self.token.as_deref().unwrap_or("*"))?;
        match page.status {
            200 => {
                for change in page.json()["Documents"].as_array().expect("changes") {
                    self.apply(change);
                }
            }
            304 => {}
            _ => panic!("{page:?}"),
        }
        // Only now: a page that did not arrive whole is read again.
        self.token = Some(page.headers.get("etag").expect("a token").clone());
        Ok(page.status == 200)
    }

    fn apply(&mut self, change: &Value) {
        let metadata = &change["metadata"];
        let kind = metadata["operationType"].as_str().expect("a kind");
        let item = if kind == "delete" {
            &change["previous"]
        } else {
            &change["current"]
        };
        let text = |name: &str| item[name].as_str().expect("a string").to_owned();
        let (key, id) = (text("pk"), text("id"));
        let before = self.items.get(&(key.clone(), id.clone())).map_or(0, |(lsn, _)| *lsn);
        assert_eq!(
            metadata["previousImageLSN"], before,
            "a gap or a repetition before {change}"
        );
        self.n_changes += 1;
        if kind == "delete" {
            self.items.remove(&(key, id));
            return;
        }
        let n = item["n"].as_u64().expect("a number");
        let last = self.last.insert(key.clone(), n).unwrap_or(0);
        assert!(last <= n, "{key} came out of order: {last} before {n}");
        let lsn = metadata["lsn"].as_u64().expect("a position");
        self.items.insert((key, id), (lsn, n));
    }

    /// Reads to the end and compares the copy with what the server holds.
    pub fn settle(&mut self, client: &mut Client, found: &HashMap<(String, String), u64>) {
        while self.read(client).unwrap() {}
        let copy: HashMap<_, _> = self.items.iter().map(|(item, (_, n))| (item.clone(), *n)).collect();
        assert_eq!(&copy, found, "the feed replays to what is there");
    }
}
