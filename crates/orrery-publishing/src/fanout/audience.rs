//! Who is to be served: the subscribers of several filters as one list of users, each with all the filters that name them.
//!
//! Every key of every filter is a lane in the order of user ids, as the server has it. Memory is one page per lane, whatever the number
//! of subscribers. Invariant: each user comes once, after every user with a lower id.

use crate::filter::Filter;
use crate::lanes::{Lanes, Next};

/// One partition key that holds subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub filter: Filter,
    pub partition_key: String,
}

/// A user and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub user: String,
    pub filters: Vec<Filter>,
}

/// The subscribers of several keys.
#[derive(Debug)]
pub struct Audience {
    sources: Vec<Source>,
    lanes: Lanes<()>,
    /// Where each source is read next.
    after: Vec<Option<String>>,
}

/// What to read before there can be a next member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedUsers {
    pub lane: usize,
    pub partition_key: String,
    pub after: Option<String>,
}

/// The next step of going through an audience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Member(Member),
    Read(Vec<WantedUsers>),
    End,
}

impl Audience {
    /// Users after `after_user` only.
    pub fn new(sources: Vec<Source>, after_user: Option<&str>) -> Audience {
        Audience {
            lanes: Lanes::new(sources.len()),
            after: vec![after_user.map(str::to_owned); sources.len()],
            sources,
        }
    }

    pub fn step(&mut self) -> Step {
        match self.lanes.take_lowest() {
            Next::End => Step::End,
            Next::Starving(lanes) => Step::Read(lanes.into_iter().map(|lane| self.wanted(lane)).collect()),
            Next::Rows { key, rows } => {
                let mut filters: Vec<Filter> = rows
                    .iter()
                    .map(|(lane, ())| self.sources[*lane].filter.clone())
                    .collect();
                filters.sort();
                filters.dedup();
                Step::Member(Member { user: key, filters })
            }
        }
    }

    fn wanted(&self, lane: usize) -> WantedUsers {
        WantedUsers {
            lane,
            partition_key: self.sources[lane].partition_key.clone(),
            after: self.after[lane].clone(),
        }
    }

    /// Adds the next users of a source, in order.
    pub fn supply(&mut self, lane: usize, users: Vec<String>, has_more: bool) {
        if let Some(last) = users.last() {
            self.after[lane] = Some(last.clone());
        }
        self.lanes
            .supply(lane, users.into_iter().map(|user| (user, ())), has_more);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// What servers sort texts by.
    fn units(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    fn sources() -> Vec<Source> {
        let source = |text: &str, key: &str| Source {
            filter: Filter::parse(text).unwrap(),
            partition_key: key.to_owned(),
        };
        vec![
            source("author:ann", "author:ann"),
            source("sports", "category:sports"),
            source("sports", "category:sports#0"),
        ]
    }

    /// Goes through an audience with pages of a size, which are in order as a server has it.
    fn walk(stored: &BTreeMap<String, BTreeSet<String>>, after: Option<&str>, page: usize) -> Vec<Member> {
        let mut audience = Audience::new(sources(), after);
        let mut members = Vec::new();
        loop {
            match audience.step() {
                Step::End => return members,
                Step::Member(member) => members.push(member),
                Step::Read(wanted) => {
                    for WantedUsers {
                        lane,
                        partition_key,
                        after,
                    } in wanted
                    {
                        let all = stored.get(&partition_key).into_iter().flatten();
                        let mut rest: Vec<String> = all
                            .filter(|user| after.as_ref().is_none_or(|after| units(user) > units(after)))
                            .cloned()
                            .collect();
                        rest.sort_by_key(|user| units(user));
                        let has_more = rest.len() > page;
                        audience.supply(lane, rest.into_iter().take(page).collect(), has_more);
                    }
                }
            }
        }
    }

    #[test]
    fn a_user_with_several_reasons_comes_once_with_all_of_them() {
        let users = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let stored = BTreeMap::from([
            ("author:ann".to_owned(), users(&["bob", "zoe"])),
            ("category:sports".to_owned(), users(&["bob", "eve"])),
            // Subscribed again after the filter was spread.
            ("category:sports#0".to_owned(), users(&["bob"])),
        ]);
        let members = walk(&stored, None, 1);
        let shown: Vec<(String, Vec<String>)> = members
            .into_iter()
            .map(|member| (member.user, member.filters.iter().map(ToString::to_string).collect()))
            .collect();
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shown,
            [
                ("bob".to_owned(), list(&["author:ann", "category:sports"])),
                ("eve".to_owned(), list(&["category:sports"])),
                ("zoe".to_owned(), list(&["author:ann"])),
            ]
        );
    }

    proptest! {
        #[test]
        fn stopping_anywhere_and_going_on_serves_everybody_once(
            users in prop::collection::btree_map("[a-cＡ-Ｃ豈😀-😂]{1,3}", 1usize..8, 0..40),
            page in 1usize..5,
            stop in 0usize..40,
        ) {
            let mut stored: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for (user, mask) in &users {
                for (index, source) in sources().iter().enumerate().filter(|(index, _)| mask & (1 << index) != 0) {
                    let _ = index;
                    stored.entry(source.partition_key.clone()).or_default().insert(user.clone());
                }
            }
            let whole = walk(&stored, None, page);
            let first: Vec<Member> = whole.iter().take(stop).cloned().collect();
            let rest = walk(&stored, first.last().map(|member| member.user.as_str()), page);
            let names: Vec<&String> = first.iter().chain(&rest).map(|member| &member.user).collect();
            let mut everybody: Vec<&String> = users.keys().collect();
            everybody.sort_by_key(|user| units(user));
            prop_assert_eq!(names, everybody);
        }
    }
}
