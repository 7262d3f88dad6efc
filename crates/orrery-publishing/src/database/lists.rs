//! Reading a list of all accounts: the shell around [`crate::union`].

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use super::ContentPublishDatabase;
use super::freshness::AccountAnswer;
use crate::account::{AccountClient, Scope, Seen};
use crate::entity::Ordered;
use crate::error::{CallError, CallKind, PublishError};
use crate::union::{Continuation, Page, Wanted};

/// Most items of a page.
const PAGE_SIZE_MAX: usize = 100;
/// Reads of one account for one page. More would be needed only if nearly everything was hidden; the page then ends early.
const ROUNDS_MAX: usize = 8;
/// Most keys in one question for repeats: rows of one read.
const ROWS_MAX: usize = PAGE_SIZE_MAX + 1;

/// Which part of a list is wanted.
#[derive(Clone, Debug)]
pub struct PageRequest {
    pub size: usize,
    /// From the page before.
    pub continuation: Option<String>,
    /// Fail rather than leave an account out.
    pub complete: bool,
}

impl Default for PageRequest {
    fn default() -> PageRequest {
        PageRequest {
            size: 20,
            continuation: None,
            complete: false,
        }
    }
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ListPage<T> {
    pub items: Vec<T>,
    /// Absent on the last page.
    pub continuation: Option<String>,
    /// Accounts that did not answer.
    pub missing: Vec<String>,
    /// What each account said of itself.
    pub accounts: Vec<AccountAnswer>,
}

/// A list: what it is called in continuations, where it lies and what belongs to it.
pub(super) struct List<'a> {
    pub kind: &'static str,
    pub subject: &'a str,
    pub scope: Scope<'a>,
    /// Members that are read.
    pub members: &'static str,
    /// Beside the type and the position.
    pub condition: &'a str,
    pub parameters: Vec<(&'static str, Value)>,
}

impl List<'_> {
    fn query<T: Ordered>(&self, after: Option<&str>, limit: usize) -> (String, Vec<(&'static str, Value)>) {
        let mut parameters = self.parameters.clone();
        parameters.push(("@type", T::TYPE.into()));
        let mut conditions = vec!["c.Type = @type"];
        if let Scope::Key(key) = self.scope {
            conditions.push("c.PartitionKey = @key");
            parameters.push(("@key", key.into()));
        }
        if !self.condition.is_empty() {
            conditions.push(self.condition);
        }
        if let Some(after) = after {
            conditions.push("c.SortKey > @after");
            parameters.push(("@after", after.into()));
        }
        let (members, conditions) = (self.members, conditions.join(" AND "));
        let text = format!("SELECT TOP {limit} {members} FROM c WHERE {conditions} ORDER BY c.SortKey");
        (text, parameters)
    }

    async fn read<T: Ordered>(
        &self,
        account: &AccountClient,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Seen<Vec<T>>, CallError> {
        let (text, parameters) = self.query::<T>(after, limit);
        account.query(&text, &parameters, self.scope).await
    }

    /// Which of these keys an account has.
    async fn has<T: Ordered>(&self, account: &AccountClient, keys: &[String]) -> Result<Vec<String>, CallError> {
        let (key_condition, mut parameters) = match self.scope {
            Scope::Key(key) => (" AND c.PartitionKey = @key", vec![("@key", Value::from(key))]),
            Scope::Everything => ("", Vec::new()),
        };
        parameters.extend([("@type", T::TYPE.into()), ("@keys", json!(keys))]);
        let text = format!(
            "SELECT VALUE c.SortKey FROM c WHERE c.Type = @type{key_condition} AND ARRAY_CONTAINS(@keys, c.SortKey)"
        );
        let found: Seen<Vec<String>> = account.query(&text, &parameters, self.scope).await?;
        Ok(found.value)
    }
}

impl ContentPublishDatabase {
    pub(super) async fn read_list<T: Ordered>(
        &self,
        list: &List<'_>,
        request: &PageRequest,
        is_hidden: impl Fn(&[T]) -> bool,
    ) -> Result<ListPage<T>, PublishError> {
        if !(1..=PAGE_SIZE_MAX).contains(&request.size) {
            return Err(PublishError::PageSize(PAGE_SIZE_MAX));
        }
        let from = match &request.continuation {
            Some(text) => Continuation::decode(text, list.kind, list.subject)?,
            None => Continuation::default(),
        };
        let tags: Vec<String> = self.accounts.iter().map(|account| account.tag().to_owned()).collect();
        let mut page = Page::new(&tags, &from, request.size);
        let read = self.fill(list, request.size, &mut page, is_hidden);
        let (mut answers, known) = futures::join!(read, self.freshness());
        for (answer, known) in answers.iter_mut().zip(known) {
            if answer.failed.is_none() {
                answer.completed_by(known);
            }
        }
        let finished = page.finish();
        if request.complete && !finished.missing.is_empty() {
            return Err(PublishError::Incomplete(finished.missing));
        }
        Ok(ListPage {
            items: finished.items,
            continuation: finished.next.map(|next| next.encode(list.kind, list.subject)),
            missing: finished.missing,
            accounts: answers,
        })
    }

    /// Reads in rounds until the page is full or everybody is at the end.
    async fn fill<T: Ordered>(
        &self,
        list: &List<'_>,
        size: usize,
        page: &mut Page<T>,
        is_hidden: impl Fn(&[T]) -> bool,
    ) -> Vec<AccountAnswer> {
        let mut answers: Vec<AccountAnswer> = self
            .accounts
            .iter()
            .map(|account| AccountAnswer::new(account.tag()))
            .collect();
        for _ in 0..ROUNDS_MAX {
            let wanted = page.advance(&is_hidden);
            if wanted.is_empty() {
                break;
            }
            let limit = (size + 1).min(ROWS_MAX);
            let reads = wanted.iter().map(|wanted| self.read_lane(list, page, wanted, limit));
            let read = join_all(reads).await;
            for (Wanted { lane, .. }, result) in wanted.into_iter().zip(read) {
                match result {
                    Ok((seen, repeats)) => {
                        answers[lane].heard(&seen);
                        let has_more = seen.value.len() >= limit;
                        page.supply(lane, seen.value, &repeats, has_more);
                    }
                    Err(error) => {
                        tracing::debug!(account = %error.account, %error, "left out of a list");
                        answers[lane].failed = Some(error.message);
                        page.leave_out(lane);
                    }
                }
            }
        }
        answers
    }

    async fn read_lane<T: Ordered>(
        &self,
        list: &List<'_>,
        page: &Page<T>,
        wanted: &Wanted,
        limit: usize,
    ) -> Result<(Seen<Vec<T>>, BTreeSet<String>), CallError> {
        let account = &self.accounts[wanted.lane];
        if account.is_resting() {
            return Err(account.error(CallKind::Unreachable, "it did not answer a moment ago", None));
        }
        let seen = account
            .noted(list.read(account, wanted.after.as_deref(), limit))
            .await?;
        let mut repeats = BTreeSet::new();
        for (other, keys) in page.suspects(wanted.lane, &seen.value) {
            let other = self.account(&other).expect("a lane's account is one of the accounts");
            // Without that answer nobody knows what was given before: this account waits for a later page.
            repeats.extend(list.has::<T>(other, &keys).await?);
        }
        Ok((seen, repeats))
    }
}
