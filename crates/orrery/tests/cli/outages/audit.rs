//! What every region shows in the end, against what its users were told.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ledger::{Ledger, World};
use super::users::{User, patiently};
use crate::service::{Call, REGIONS};
use crate::support::until;

/// Waits until every region shows everything that was acknowledged, once, and nothing that was not asked for.
pub fn check(world: &World, users: &[User<'_>]) {
    for region in 0..REGIONS.len() {
        let reader = Reader {
            world,
            region,
            token: &users[0].token,
        };
        for user in users {
            let reader = Reader {
                token: &user.token,
                ..reader
            };
            settled(|| reader.feed(&user.name, &world.ledger()));
            settled(|| reader.followed(&user.name, &world.ledger()));
        }
        let articles: Vec<String> = world.ledger().published.keys().cloned().collect();
        // One user alone would be told to come later most of the time.
        for (article, user) in articles.iter().zip(users.iter().cycle()) {
            let reader = Reader {
                token: &user.token,
                ..reader
            };
            settled(|| reader.article(article, &world.ledger()));
            settled(|| reader.reviews(article, &world.ledger()));
        }
    }
}

/// Waits until something is right, or says what is wrong.
fn settled(look: impl Fn() -> Result<(), String>) {
    let mut last = Ok(());
    until(|| {
        last = look();
        last.is_ok()
    });
    assert_eq!(last, Ok(()));
}

/// One who looks at a region.
#[derive(Clone, Copy)]
struct Reader<'a> {
    world: &'a World,
    region: usize,
    token: &'a str,
}

impl Reader<'_> {
    fn get(&self, path: &str) -> Result<Value, String> {
        let call = Call {
            method: "GET",
            path,
            token: self.token,
            headers: "",
            body: None,
        };
        match patiently(self.world.url(self.region), call) {
            Ok((200, text)) => Ok(serde_json::from_str(&text).unwrap()),
            other => Err(format!("{path} in {}: {other:?}", REGIONS[self.region])),
        }
    }

    /// All items of a list, page by page.
    fn all(&self, path: &str) -> Result<Vec<Value>, String> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let mut page = self.get(&format!("{path}?pageSize=100&complete=true{next}"))?;
            items.append(page["items"].as_array_mut().unwrap());
            match page["continuation"].as_str() {
                Some(continuation) => next = format!("&continuation={continuation}"),
                None => return Ok(items),
            }
        }
    }

    fn feed(&self, user: &str, ledger: &Ledger) -> Result<(), String> {
        let place = format!("the feed of {user} in {}", REGIONS[self.region]);
        let items = self.all("/v1/notifications")?;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for item in &items {
            *counts.entry(item["title"].as_str().unwrap()).or_default() += 1;
        }
        if let Some(twice) = counts.iter().find(|(_, count)| **count > 1) {
            return Err(format!("{place} has {twice:?}"));
        }
        if let Some(lost) = ledger
            .published
            .values()
            .find(|title| !counts.contains_key(title.as_str()))
        {
            return Err(format!("{place} lacks {lost}"));
        }
        let is_known = |title: &str| {
            ledger.maybe_published.contains(title) || ledger.published.values().any(|known| known == title)
        };
        if let Some(strange) = counts.keys().find(|title| !is_known(title)) {
            return Err(format!("{place} has {strange}, which nobody published"));
        }
        let is_unread = |item: &&Value| {
            let key = (user.to_owned(), item["id"].as_str().unwrap().to_owned());
            ledger.read.contains(&key) && !item["readAt"].is_u64()
        };
        match items.iter().find(is_unread) {
            Some(unread) => Err(format!("{place} has {} as unread", unread["title"])),
            None => Ok(()),
        }
    }

    fn followed(&self, user: &str, ledger: &Ledger) -> Result<(), String> {
        let page = self.get("/v1/subscriptions")?;
        let items = page["items"].as_array().unwrap();
        for ((_, filter), state) in ledger.followed.iter().filter(|((name, _), _)| name == user) {
            let is_there = items.iter().any(|item| item["filter"] == filter.as_str());
            if state.is_some_and(|state| state != is_there) {
                return Err(format!(
                    "{user} follows {filter} in {}: {is_there}",
                    REGIONS[self.region]
                ));
            }
        }
        Ok(())
    }

    fn article(&self, id: &str, ledger: &Ledger) -> Result<(), String> {
        let article = self.get(&format!("/v1/articles/{id}"))?;
        let text = article["body"].as_str().unwrap_or_default();
        let is_right = match ledger.edited.get(id) {
            Some(edited) => text == edited,
            None => text == "First." || ledger.maybe_edited.contains(id),
        };
        is_right
            .then_some(())
            .ok_or_else(|| format!("{id} in {} says {text}", REGIONS[self.region]))
    }

    fn reviews(&self, article: &str, ledger: &Ledger) -> Result<(), String> {
        let tags = ["usa", "europe", "asia"];
        let items = self.all(&format!("/v1/articles/{article}/reviews"))?;
        let shown: Vec<(String, String, usize)> = items
            .iter()
            .map(|item| {
                let region = tags.iter().position(|tag| item["account"] == *tag).unwrap();
                (article.to_owned(), item["user"].as_str().unwrap().to_owned(), region)
            })
            .collect();
        let expected = ledger.reviewed.iter().filter(|(of, ..)| of == article);
        for review in expected {
            let n_shown = shown.iter().filter(|other| *other == review).count();
            if n_shown != 1 {
                return Err(format!(
                    "{review:?} is shown {n_shown} times in {}",
                    REGIONS[self.region]
                ));
            }
        }
        let is_known = |review: &&(String, String, usize)| {
            ledger.reviewed.contains(*review) || ledger.maybe_reviewed.contains(*review)
        };
        match shown.iter().find(|review| !is_known(review)) {
            Some(strange) => Err(format!("nobody wrote {strange:?}")),
            None => Ok(()),
        }
    }
}
