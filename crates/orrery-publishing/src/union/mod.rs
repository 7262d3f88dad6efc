//! The union of all accounts as one ordered list: merged, without duplicates, page by page.
//!
//! An account's part is read by the sort key after which it goes on, never by a server's own continuation: a position then
//! survives splits, failovers and a change of the page size, and an account that did not answer keeps its own. Invariants: a
//! page is in order; nothing is given twice; what an account has after its position is given by a later page, unless it was
//! written meanwhile above that position.

mod continuation;
mod hide;

pub use continuation::{Continuation, TokenError};
pub use hide::Cancellations;

use std::collections::BTreeSet;

use crate::entity::Ordered;
use crate::lanes::{Lanes, Next, server_order};

/// A page being put together.
#[derive(Debug)]
pub struct Page<T> {
    accounts: Vec<Lane>,
    lanes: Lanes<T>,
    size: usize,
    items: Vec<T>,
    last: Option<String>,
}

#[derive(Debug)]
struct Lane {
    account: String,
    /// Everything up to here was given by earlier pages.
    start: Option<String>,
    /// Where the next read of this account begins.
    read_to: Option<String>,
    /// Has answered for this page.
    took_part: bool,
    is_missing: bool,
    /// What the page had reached when this one was left out, if it had taken part until then.
    left_at: Option<String>,
}

/// What to read before the page can go on: an account, after which key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub lane: usize,
    pub account: String,
    pub after: Option<String>,
}

/// A page, and how to go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished<T> {
    pub items: Vec<T>,
    /// Absent when every account has been read to its end.
    pub next: Option<Continuation>,
    pub missing: Vec<String>,
}

impl<T: Ordered> Page<T> {
    pub fn new(accounts: &[String], from: &Continuation, size: usize) -> Page<T> {
        let lane = |account: &String| Lane {
            account: account.clone(),
            start: from.position(account).map(str::to_owned),
            read_to: from.position(account).map(str::to_owned),
            took_part: false,
            is_missing: false,
            left_at: None,
        };
        Page {
            accounts: accounts.iter().map(lane).collect(),
            lanes: Lanes::new(accounts.len()),
            size,
            items: Vec::new(),
            last: None,
        }
    }

    /// Takes what can be taken. Returns what must be read first, or nothing when the page is done. What is hidden is told by
    /// all copies of a row: each may have been written for reasons of its own.
    pub fn advance(&mut self, is_hidden: impl Fn(&[T]) -> bool) -> Vec<Wanted> {
        while self.items.len() < self.size {
            match self.lanes.take_lowest() {
                Next::End => break,
                Next::Starving(lanes) => return lanes.into_iter().map(|lane| self.wanted(lane)).collect(),
                Next::Rows { key, rows } => {
                    self.last = Some(key);
                    let copies: Vec<T> = rows.into_iter().map(|(_, row)| row).collect();
                    if !is_hidden(&copies) {
                        self.items.extend(copies.into_iter().reduce(Ordered::united));
                    }
                }
            }
        }
        Vec::new()
    }

    fn wanted(&self, lane: usize) -> Wanted {
        Wanted {
            lane,
            account: self.accounts[lane].account.clone(),
            after: self.accounts[lane].read_to.clone(),
        }
    }

    /// Adds an account's answer: rows after the key that was asked for, in order, without those an earlier page gave, and
    /// whether there may be more.
    pub fn supply(&mut self, lane: usize, rows: Vec<T>, repeats: &BTreeSet<String>, has_more: bool) {
        self.accounts[lane].took_part = true;
        if let Some(last) = rows.last() {
            self.accounts[lane].read_to = Some(last.sort_key());
        }
        let rows = rows.into_iter().map(|row| (row.sort_key(), row));
        let fresh = rows.filter(|(key, _)| !repeats.contains(key));
        self.lanes.supply(lane, fresh, has_more);
    }

    /// An account did not answer: the page goes on without it, and a later one with it. What it has given stays given.
    pub fn leave_out(&mut self, lane: usize) {
        let left = &mut self.accounts[lane];
        left.is_missing = true;
        left.left_at = self.last.clone().filter(|_| left.took_part);
        self.lanes.close(lane);
    }

    /// Rows of an account that joins late and may have been given by an earlier page, from another account that has a copy:
    /// their keys, and the accounts to ask. Empty in the usual case, where all accounts are equally far.
    pub fn suspects(&self, lane: usize, rows: &[T]) -> Vec<(String, Vec<String>)> {
        let others = self.accounts.iter().enumerate().filter(|(index, _)| *index != lane);
        let ask = others.filter_map(|(_, other)| {
            let passed = other.start.as_ref()?;
            let keys: Vec<String> = rows
                .iter()
                .map(Ordered::sort_key)
                .filter(|key| server_order(key, passed).is_le())
                .collect();
            (!keys.is_empty()).then(|| (other.account.clone(), keys))
        });
        ask.collect()
    }

    pub fn finish(self) -> Finished<T> {
        let missing: Vec<&Lane> = self.accounts.iter().filter(|lane| lane.is_missing).collect();
        let is_done = missing.is_empty() && (0..self.accounts.len()).all(|lane| !self.lanes.is_open(lane));
        let mut next = Continuation::default();
        for lane in &self.accounts {
            // An account that took part has given everything up to the last key, even if that came from another one.
            let reached = if lane.is_missing { &lane.left_at } else { &self.last };
            let positions = reached.iter().chain(&lane.start);
            if let Some(position) = positions.max_by(|one, other| server_order(one, other)) {
                next.set(&lane.account, position.clone());
            }
        }
        Finished {
            missing: missing.iter().map(|lane| lane.account.clone()).collect(),
            items: self.items,
            next: (!is_done).then_some(next),
        }
    }
}

#[cfg(test)]
mod tests;
