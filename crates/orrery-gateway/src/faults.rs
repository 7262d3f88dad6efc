//! Fault rules: failures on demand, so that an application can see with any SDK how it behaves when the service fails.
//!
//! A rule says which requests it is for and what happens to them. Whether a rule with a share below one applies is
//! counted, not drawn: the same requests in the same order meet the same faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use orrery_model::{Error, Result, Status};
use orrery_node::geo::topology::is_same_region;
use serde::{Deserialize, Serialize};

use crate::wire::is_operation;

/// More rules than anyone writes; each is looked at with every request.
const RULES_MAX: usize = 100;
const DELAY_MS_MAX: u64 = 600_000;

/// A rule as an administrator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FaultRule {
    /// Name of the operation, as in the metrics: `read_item`, `query_items`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Name of the region that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Part of the matching requests the rule applies to, above 0 and up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// How often the rule applies before it is used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The operation is executed first and its answer lost: what a client sees when the network fails on the way back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub after: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_status: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Close the connection without an answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drop_connection: bool,
}

/// A rule in force.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRule {
    pub id: u64,
    #[serde(flatten)]
    pub rule: FaultRule,
    /// Requests that matched, and how many of them the rule was applied to.
    pub n_matched: u64,
    pub n_applied: u64,
}

/// What a rule is matched against.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub operation: &'a str,
    pub method: &'a str,
    pub region: Option<&'a str>,
    pub database: Option<&'a str>,
    pub container: Option<&'a str>,
}

/// What shall happen to a request.
#[derive(Debug, Default)]
pub struct Fault {
    /// The rule that asks for it.
    pub rule: u64,
    pub delay: Duration,
    pub after: bool,
    pub effect: Effect,
}

#[derive(Debug, Default)]
pub enum Effect {
    /// Nothing but the delay.
    #[default]
    None,
    Fail(Error),
    DropConnection,
}

/// The rules in force, in the order they were added; the first that applies wins.
#[derive(Debug, Default)]
pub struct Faults {
    /// Saves requests the lock as long as nobody wants faults.
    any: AtomicBool,
    rules: Mutex<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    last_id: u64,
    active: Vec<ActiveRule>,
}

impl Faults {
    pub fn add(&self, rule: FaultRule) -> Result<ActiveRule> {
        rule.validate()?;
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if rules.active.len() == RULES_MAX {
            return Err(Error::bad_request(format!(
                "There are {RULES_MAX} fault rules already."
            )));
        }
        rules.last_id += 1;
        let active = ActiveRule {
            id: rules.last_id,
            rule,
            n_matched: 0,
            n_applied: 0,
        };
        rules.active.push(active.clone());
        self.any.store(true, Ordering::Release);
        Ok(active)
    }

    pub fn list(&self) -> Vec<ActiveRule> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).active.clone()
    }

    /// Whether there was such a rule.
    pub fn remove(&self, id: u64) -> bool {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let before = rules.active.len();
        rules.active.retain(|rule| rule.id != id);
        self.any.store(!rules.active.is_empty(), Ordering::Release);
        rules.active.len() < before
    }

    pub fn clear(&self) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).active.clear();
        self.any.store(false, Ordering::Release);
    }

    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// The fault this request meets, if any.
    pub fn meet(&self, subject: Subject<'_>) -> Option<Fault> {
        if self.is_empty() {
            return None;
        }
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules
            .active
            .iter_mut()
            .find_map(|active| active.apply(subject).then(|| active.fault()))
    }
}

impl ActiveRule {
    /// Counts a matching request and says whether the rule applies to it: the n-th does when the share of n requests
    /// passes a whole number.
    fn apply(&mut self, subject: Subject<'_>) -> bool {
        let used_up = self.rule.count.is_some_and(|count| self.n_applied >= count);
        if used_up || !self.rule.matches(subject) {
            return false;
        }
        let share = self.rule.share.unwrap_or(1.0);
        let due = |n_matched: u64| (n_matched as f64 * share + 1e-9).floor();
        self.n_matched += 1;
        let applies = due(self.n_matched) > due(self.n_matched - 1);
        self.n_applied += u64::from(applies);
        applies
    }
}

impl ActiveRule {
    fn fault(&self) -> Fault {
        let rule = &self.rule;
        let effect = match rule.status {
            Some(code) => Effect::Fail(rule.error(code)),
            None if rule.drop_connection => Effect::DropConnection,
            None => Effect::None,
        };
        Fault {
            rule: self.id,
            delay: Duration::from_millis(rule.delay_ms.unwrap_or(0)),
            after: rule.after,
            effect,
        }
    }
}

impl FaultRule {
    fn validate(&self) -> Result<()> {
        if let Some(name) = &self.operation
            && !is_operation(name)
        {
            return Err(Error::bad_request(format!("There is no operation '{name}'.")));
        }
        let fails = self.status.is_some();
        if !fails && (self.sub_status.is_some() || self.retry_after_ms.is_some() || self.message.is_some()) {
            return Err(Error::bad_request(
                "A fault rule with subStatus, retryAfterMs or message needs a status.",
            ));
        }
        if fails == self.drop_connection && (fails || self.delay_ms.is_none()) {
            return Err(Error::bad_request(
                "A fault rule needs exactly one of status and dropConnection, or a delayMs alone.",
            ));
        }
        if self.status.is_some_and(|status| !(400..=599).contains(&status)) {
            return Err(Error::bad_request(
                "The status of a fault rule lies between 400 and 599.",
            ));
        }
        if self.share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            return Err(Error::bad_request(
                "The share of a fault rule is above 0 and at most 1.",
            ));
        }
        if self.delay_ms.is_some_and(|delay| delay > DELAY_MS_MAX) {
            return Err(Error::bad_request(format!(
                "The delayMs of a fault rule is at most {DELAY_MS_MAX}."
            )));
        }
        Ok(())
    }

    fn matches(&self, subject: Subject<'_>) -> bool {
        let same =
            |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|wanted| found == Some(wanted));
        let same_word = |wanted: &Option<String>, found: &str| {
            wanted
                .as_deref()
                .is_none_or(|wanted| wanted.eq_ignore_ascii_case(found))
        };
        let is_asked = |wanted: &str| subject.region.is_some_and(|found| is_same_region(wanted, found));
        self.region.as_deref().is_none_or(is_asked)
            && same_word(&self.operation, subject.operation)
            && same_word(&self.method, subject.method)
            && same(&self.database, subject.database)
            && same(&self.container, subject.container)
    }

    fn error(&self, code: u16) -> Error {
        let status = Status {
            code,
            sub: self.sub_status.unwrap_or(0),
        };
        let error = Error::new(
            status,
            self.message
                .as_deref()
                .unwrap_or("A fault rule of the server asked for this failure."),
        );
        match self.retry_after_ms {
            Some(milliseconds) => error.with_retry_after_ms(milliseconds),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Subject<'static> = Subject {
        operation: "read_item",
        method: "GET",
        region: Some("West US"),
        database: Some("shop"),
        container: Some("orders"),
    };

    fn unavailable() -> FaultRule {
        FaultRule {
            status: Some(503),
            ..FaultRule::default()
        }
    }

    #[test]
    fn a_rule_applies_to_the_requests_it_names() {
        for (rule, applies) in [
            (unavailable(), true),
            (
                FaultRule {
                    operation: Some("read_item".into()),
                    ..unavailable()
                },
                true,
            ),
            (
                FaultRule {
                    operation: Some("create_item".into()),
                    ..unavailable()
                },
                false,
            ),
            (
                FaultRule {
                    method: Some("get".into()),
                    ..unavailable()
                },
                true,
            ),
            (
                FaultRule {
                    database: Some("shop".into()),
                    container: Some("orders".into()),
                    ..unavailable()
                },
                true,
            ),
            (
                FaultRule {
                    container: Some("customers".into()),
                    ..unavailable()
                },
                false,
            ),
        ] {
            let faults = Faults::default();
            faults.add(rule.clone()).unwrap();
            assert_eq!(faults.meet(READ).is_some(), applies, "{rule:?}");
        }
    }

    #[test]
    fn a_share_is_met_exactly_and_evenly() {
        for (share, n_requests, n_expected) in [(0.5, 10, 5), (0.1, 100, 10), (0.3, 10, 3), (1.0, 7, 7)] {
            let faults = Faults::default();
            faults
                .add(FaultRule {
                    share: Some(share),
                    ..unavailable()
                })
                .unwrap();
            let n_faults = (0..n_requests).filter(|_| faults.meet(READ).is_some()).count();
            assert_eq!(n_faults, n_expected, "{share}");
        }
    }

    #[test]
    fn a_rule_is_used_up_after_its_count() {
        let faults = Faults::default();
        faults
            .add(FaultRule {
                count: Some(2),
                ..unavailable()
            })
            .unwrap();
        let met: Vec<bool> = (0..4).map(|_| faults.meet(READ).is_some()).collect();
        assert_eq!(met, [true, true, false, false]);
        assert_eq!(faults.list()[0].n_applied, 2);
    }

    #[test]
    fn a_failure_carries_status_sub_status_and_retry_after() {
        let faults = Faults::default();
        let rule = FaultRule {
            status: Some(429),
            sub_status: Some(3200),
            retry_after_ms: Some(7),
            ..FaultRule::default()
        };
        faults.add(rule).unwrap();
        let Some(Fault {
            effect: Effect::Fail(error),
            ..
        }) = faults.meet(READ)
        else {
            panic!("no failure")
        };
        assert_eq!((error.status(), error.retry_after_ms()), (Status::THROTTLED, Some(7)));
    }

    #[test]
    fn removed_rules_no_longer_apply() {
        let faults = Faults::default();
        let id = faults.add(unavailable()).unwrap().id;
        assert!(!faults.remove(id + 1));
        assert!(faults.remove(id));
        assert!(faults.meet(READ).is_none());
        faults.add(unavailable()).unwrap();
        faults.clear();
        assert!(faults.meet(READ).is_none());
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_refused() {
        for rule in [
            FaultRule::default(),
            FaultRule {
                status: Some(200),
                ..FaultRule::default()
            },
            FaultRule {
                status: Some(503),
                drop_connection: true,
                ..FaultRule::default()
            },
            FaultRule {
                sub_status: Some(3),
                delay_ms: Some(1),
                ..FaultRule::default()
            },
            FaultRule {
                share: Some(0.0),
                ..unavailable()
            },
            FaultRule {
                share: Some(f64::NAN),
                ..unavailable()
            },
            FaultRule {
                delay_ms: Some(u64::MAX),
                ..unavailable()
            },
        ] {
            assert!(Faults::default().add(rule.clone()).is_err(), "{rule:?}");
        }
    }
}
