//! People who publish, read, review, follow and move, each one call after the other.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::ledger::World;
use crate::service::{Call, REGIONS, send, token};

/// What everybody writes about and follows.
pub const CATEGORY: &str = "news";

/// A person at home in a region. Belongs to one thread at a time.
pub struct User<'a> {
    world: &'a World,
    pub name: String,
    pub token: String,
    home: usize,
    n_done: Cell<usize>,
    mine: RefCell<Vec<(String, String)>>,
    /// The last page of the feed: notification, article and whether it was read.
    feed: RefCell<Vec<(String, String, bool)>>,
}

/// What became of a call.
enum Outcome {
    Done {
        region: usize,
        body: Value,
    },
    /// The region went away before it answered: it may have happened there.
    Lost {
        region: usize,
    },
    /// Written down already.
    Failed,
}

impl<'a> User<'a> {
    pub fn new(world: &'a World, home: usize, number: usize) -> User<'a> {
        let name = format!("user-{number}");
        User {
            token: token(world.url(home), &name),
            world,
            name,
            home,
            n_done: Cell::new(number),
            mine: RefCell::default(),
            feed: RefCell::default(),
        }
    }

    /// Follows what everybody writes about, while all is well.
    pub fn settle(&self) {
        let form = json!({"filter": format!("category:{CATEGORY}")});
        let done = self.act("POST", "/v1/subscriptions", "", Some(&form));
        assert!(
            matches!(done, Outcome::Done { .. }),
            "{:?}",
            self.world.ledger().failures
        );
    }

    pub fn live(&self) {
        while !self.world.is_over() {
            let number = self.n_done.replace(self.n_done.get() + 1);
            match number % 8 {
                0 => self.publish(number),
                1 | 4 => self.look(),
                2 => self.review(),
                3 => self.mark_read(),
                5 => self.follow(number),
                6 => self.edit(),
                _ => self.browse(),
            }
        }
    }

    fn publish(&self, number: usize) {
        let title = format!("{} {number}", self.name);
        let draft = json!({"category": CATEGORY, "title": title, "body": "First."});
        let named = format!("idempotency-key: {number}\r\n");
        match self.act("POST", "/v1/articles", &named, Some(&draft)) {
            Outcome::Done { body, .. } => {
                let [id, etag] = ["id", "etag"].map(|member| body[member].as_str().unwrap().to_owned());
                self.mine.borrow_mut().push((id.clone(), etag));
                self.world.ledger().published.insert(id, title);
            }
            Outcome::Lost { .. } => drop(self.world.ledger().maybe_published.insert(title)),
            Outcome::Failed => {}
        }
    }

    fn look(&self) {
        let Outcome::Done { body, .. } = self.act("GET", "/v1/notifications", "", None) else {
            return;
        };
        let items = body["items"].as_array().unwrap().iter();
        let known = items.map(|item| {
            let [id, article] = ["id", "articleId"].map(|member| item[member].as_str().unwrap().to_owned());
            (id, article, item["readAt"].is_u64())
        });
        *self.feed.borrow_mut() = known.collect();
    }

    fn review(&self) {
        let number = self.n_done.get();
        let article = self
            .feed
            .borrow()
            .get(number / 8 % 20)
            .map(|(_, article, _)| article.clone());
        let Some(article) = article else { return };
        let form = json!({"text": "I have read it.", "rating": 1 + number % 5});
        let path = format!("/v1/articles/{article}/review");
        match self.act("PUT", &path, "", Some(&form)) {
            Outcome::Done { region, .. } => {
                self.world
                    .ledger()
                    .reviewed
                    .insert((article, self.name.clone(), region));
            }
            Outcome::Lost { region } => {
                let mut ledger = self.world.ledger();
                ledger.maybe_reviewed.insert((article, self.name.clone(), region));
            }
            Outcome::Failed => {}
        }
    }

    fn mark_read(&self) {
        let unread = self.feed.borrow().iter().find(|(_, _, is_read)| !is_read).cloned();
        let Some((id, ..)) = unread else { return };
        let path = format!("/v1/notifications/{id}/read");
        if let Outcome::Done { body, .. } = self.act("POST", &path, "", None) {
            self.count_queued(body["queued"] == true);
            self.world.ledger().read.insert((self.name.clone(), id));
        }
    }

    /// Follows something of the user's own, and no longer the next time.
    fn follow(&self, number: usize) {
        let filter = format!("tag:{}-{}", self.name, number / 16);
        let key = (self.name.clone(), filter.clone());
        let is_followed = self.world.ledger().followed.get(&key) == Some(&Some(true));
        let done = if is_followed {
            let path = format!("/v1/subscriptions/{}", filter.replace(':', "%3A"));
            self.act("DELETE", &path, "", None)
        } else {
            self.act("POST", "/v1/subscriptions", "", Some(&json!({"filter": filter})))
        };
        let state = match done {
            Outcome::Done { body, .. } => {
                self.count_queued(body["queued"].as_array().is_some_and(|queued| !queued.is_empty()));
                Some(!is_followed)
            }
            Outcome::Lost { .. } => None,
            Outcome::Failed => return,
        };
        self.world.ledger().followed.insert(key, state);
    }

    /// Changes the oldest article of the user that was not changed yet.
    fn edit(&self) {
        if self.mine.borrow().len() < 2 {
            return;
        }
        let (article, etag) = self.mine.borrow_mut().remove(0);
        let Some(title) = self.world.ledger().published.get(&article).cloned() else {
            return;
        };
        let text = format!("Second, by {}.", self.name);
        let draft = json!({"category": CATEGORY, "title": title, "body": text});
        let condition = format!("if-match: {etag}\r\n");
        match self.act("PUT", &format!("/v1/articles/{article}"), &condition, Some(&draft)) {
            Outcome::Done { body, .. } => {
                self.count_queued(body["queued"] == true);
                self.world.ledger().edited.insert(article, text);
            }
            Outcome::Lost { .. } => drop(self.world.ledger().maybe_edited.insert(article)),
            Outcome::Failed => {}
        }
    }

    /// Reads an article that the feed has shown, its reviews and what they come to.
    fn browse(&self) {
        let number = self.n_done.get();
        let article = self
            .feed
            .borrow()
            .get(number / 8 % 5)
            .map(|(_, article, _)| article.clone());
        let Some(article) = article else { return };
        for part in ["/reviews", "/summary", ""] {
            self.act("GET", &format!("/v1/articles/{article}{part}"), "", None);
        }
        self.act("GET", "/v1/subscriptions", "", None);
        self.act(
            "GET",
            &format!("/v1/articles?author={}&pageSize=5", self.name),
            "",
            None,
        );
    }

    fn count_queued(&self, is_queued: bool) {
        self.world.ledger().n_queued += u64::from(is_queued);
    }

    /// Asks the own region, and the others when it is gone. Whatever else goes wrong is a failure.
    fn act(&self, method: &str, path: &str, headers: &str, body: Option<&Value>) -> Outcome {
        let call = Call {
            method,
            path,
            token: &self.token,
            headers,
            body,
        };
        for offset in 0..REGIONS.len() {
            let region = (self.home + offset) % REGIONS.len();
            let begun = Instant::now();
            let answer = patiently(self.world.url(region), call);
            let mut ledger = self.world.ledger();
            ledger.n_calls += 1;
            ledger.n_moved += u64::from(offset > 0);
            if let Ok((200..300, text)) = &answer {
                let body = serde_json::from_str(text).unwrap();
                return Outcome::Done { region, body };
            }
            let told = format!("{method} {path} of {} in {}: {answer:?}", self.name, REGIONS[region]);
            if !self.world.was_gone(region, begun) {
                ledger.failures.push(told);
                return Outcome::Failed;
            }
            // What was refused because the region is stopped has not happened.
            let is_refused = answer.is_ok_and(|(_, text)| text.contains("this region is stopped"));
            if method != "GET" && !is_refused {
                return Outcome::Lost { region };
            }
        }
        let nobody = format!("{method} {path} of {}: no region answers", self.name);
        self.world.ledger().failures.push(nobody);
        Outcome::Failed
    }
}

/// Comes again when told to come later for having asked too much.
pub fn patiently(url: &str, call: Call<'_>) -> std::io::Result<(u16, String)> {
    loop {
        match send(url, call) {
            Ok((429, _)) => std::thread::sleep(Duration::from_secs(1)),
            answer => return answer,
        }
    }
}
