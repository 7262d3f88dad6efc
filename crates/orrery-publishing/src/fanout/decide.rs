//! What a change of an article means for the subscribers of one account: pure, from the article, what is remembered of it and
//! the time.
//!
//! A first version notifies. A later version does not notify again, because what is remembered says that it is done, and adds
//! its filters to that; and when nothing is remembered any more, the article is too old for it to be news. A retraction withdraws,
//! whatever is remembered: who asked for articles of before may have been told by nobody here.
//! Invariants: nobody is notified of one article twice; work that was cut short goes on where it stood, unless it is about other people now.

use serde::{Deserialize, Serialize};

use crate::entity::{Article, NOTIFICATION_TTL_S};
use crate::filter::Filter;

/// How long a role remembers an article: as long as notifications live, so that a retraction finds those that earlier versions
/// have raised.
pub const MEMORY_S: u64 = NOTIFICATION_TTL_S;
/// How long an edit may still find the first version unnoticed. Not longer than what is remembered, or it would be told twice.
pub const NEWS_S: u64 = 30 * 24 * 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Notifying,
    Notified,
    Withdrawing,
    Withdrawn,
}

/// What a role remembers of an article.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Progress {
    pub article_id: String,
    pub phase: Phase,
    /// Everybody up to this user, in order, has been served.
    #[serde(default)]
    pub after_user: Option<String>,
    /// Whose subscribers were or are being served, or may have asked for what was published before.
    pub filters: Vec<Filter>,
    /// How many there were, so far.
    #[serde(default)]
    pub n_users: u64,
}

/// Serving the subscribers of some filters, in the order of their ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    pub filters: Vec<Filter>,
    pub after_user: Option<String>,
    pub n_users: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Write a notification for everybody who subscribed.
    Notify(Work),
    /// Remove the notifications of everybody who may have one.
    Withdraw(Work),
    /// Nobody is to be told, but others may come to hear of it by themselves: remember who, in case it is retracted.
    Remember(Progress),
    Skip(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// This or an earlier version was served.
    Done,
    /// Too old to be news.
    Old,
}

pub fn decide(article: &Article, progress: Option<&Progress>, now_ms: u64) -> Decision {
    if article.is_retracted() {
        return withdraw(article, progress);
    }
    match progress {
        Some(progress) if progress.phase != Phase::Notifying => remember(article, progress),
        progress => {
            let is_old = now_ms.saturating_sub(article.created_at) > NEWS_S * 1000;
            if is_old && progress.is_none() {
                return Decision::Skip(Why::Old);
            }
            // Whoever was told by filters of before has to hear of a retraction.
            let filters = progress.map_or_else(|| article.filters(), |begun| all_filters(article, begun));
            Decision::Notify(work(filters, progress))
        }
    }
}

/// An edit notifies nobody, but new subscribers of its filters may ask for articles of before.
fn remember(article: &Article, progress: &Progress) -> Decision {
    let filters = all_filters(article, progress);
    if progress.phase != Phase::Notified || filters.len() == progress.filters.len() {
        return Decision::Skip(Why::Done);
    }
    Decision::Remember(Progress {
        filters,
        ..progress.clone()
    })
}

/// The filters of this version and of those before, in order.
fn all_filters(article: &Article, progress: &Progress) -> Vec<Filter> {
    let mut filters = article.filters();
    filters.extend(progress.filters.iter().cloned());
    filters.sort();
    filters.dedup();
    filters
}

fn withdraw(article: &Article, progress: Option<&Progress>) -> Decision {
    match progress {
        None => Decision::Withdraw(work(article.filters(), None)),
        Some(progress) if progress.phase == Phase::Withdrawn => Decision::Skip(Why::Done),
        Some(progress) => {
            // An edit may have moved the article to other subscribers after the first ones were told.
            let is_begun = progress.phase == Phase::Withdrawing;
            let begun = Some(progress).filter(|_| is_begun);
            Decision::Withdraw(work(all_filters(article, progress), begun))
        }
    }
}

/// Goes on after the last user, if the work is still about the same filters.
fn work(filters: Vec<Filter>, progress: Option<&Progress>) -> Work {
    let same = progress.filter(|progress| progress.filters == filters);
    Work {
        after_user: same.and_then(|progress| progress.after_user.clone()),
        n_users: same.map_or(0, |progress| progress.n_users),
        filters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::Draft;

    const NOW: u64 = 1_700_000_000_000;

    fn article() -> Article {
        let draft = Draft {
            category: "sports".into(),
            tags: vec!["ski".into(), "snow".into()],
            title: "t".into(),
            ..Draft::default()
        };
        Article::new("usa.X".into(), "usa", "ann", draft, NOW).unwrap()
    }

    fn progress(phase: Phase, after: Option<&str>) -> Progress {
        Progress {
            article_id: "usa.X".into(),
            phase,
            after_user: after.map(str::to_owned),
            filters: article().filters(),
            n_users: 3,
        }
    }

    fn notify(after: Option<&str>, n_users: u64) -> Decision {
        Decision::Notify(Work {
            filters: article().filters(),
            after_user: after.map(str::to_owned),
            n_users,
        })
    }

    #[test]
    fn a_new_article_notifies_by_author_category_and_tags_in_that_order() {
        let Decision::Notify(work) = decide(&article(), None, NOW + 5) else {
            panic!("it is new")
        };
        let texts: Vec<String> = work.filters.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["author:ann", "category:sports", "tag:ski", "tag:snow"]);
        assert_eq!(work.after_user, None);
    }

    #[test]
    fn work_that_was_cut_short_goes_on_where_it_stood() {
        let begun = progress(Phase::Notifying, Some("bob"));
        assert_eq!(decide(&article(), Some(&begun), NOW), notify(Some("bob"), 3));
    }

    #[test]
    fn work_that_is_about_other_people_now_begins_again() {
        let mut begun = progress(Phase::Notifying, Some("bob"));
        begun.filters.pop();
        assert_eq!(decide(&article(), Some(&begun), NOW), notify(None, 0));
    }

    #[test]
    fn work_that_an_edit_came_between_still_knows_whom_the_retraction_is_for() {
        let art = Draft {
            title: "u".into(),
            category: "art".into(),
            ..Draft::default()
        };
        let edited = article().edited(art, NOW + 9).unwrap();
        let begun = progress(Phase::Notifying, Some("bob"));
        let Decision::Notify(work) = decide(&edited, Some(&begun), NOW + 9) else {
            panic!("it was not finished")
        };
        let texts: Vec<String> = work.filters.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["author:ann", "category:art", "category:sports", "tag:ski", "tag:snow"]
        );
        assert_eq!(
            work.after_user, None,
            "its new subscribers are looked for from the first on"
        );
        let done = Progress {
            filters: work.filters.clone(),
            ..progress(Phase::Notified, None)
        };
        let Decision::Withdraw(taken_back) = decide(&edited.retracted(NOW + 10), Some(&done), NOW + 10) else {
            panic!("somebody was told")
        };
        assert_eq!(taken_back.filters, work.filters);
    }

    #[test]
    fn what_was_raised_by_filters_of_before_is_known_as_long_as_notifications_live() {
        const {
            assert!(MEMORY_S >= NOTIFICATION_TTL_S, "a retraction would not find them");
            assert!(NEWS_S <= MEMORY_S, "an edit would notify again");
        }
    }

    #[test]
    fn an_edit_does_not_notify_again_however_late_it_comes() {
        let edited = article()
            .edited(
                Draft {
                    title: "u".into(),
                    category: "art".into(),
                    ..Draft::default()
                },
                NOW + 9,
            )
            .unwrap();
        let done = progress(Phase::Notified, None);
        // Who subscribes to the new category with a look back is told of it, and has to hear of a retraction after the next edit.
        let Decision::Remember(known) = decide(&edited, Some(&done), NOW + 9) else {
            panic!("its filters are others now")
        };
        assert_eq!((known.phase, known.filters.len()), (Phase::Notified, 5));
        assert_eq!(decide(&edited, Some(&known), NOW + 9), Decision::Skip(Why::Done));
        let Decision::Withdraw(work) = decide(&article().retracted(NOW + 10), Some(&known), NOW + 10) else {
            panic!("somebody was told")
        };
        assert_eq!(work.filters, known.filters);
        let later = NOW + NEWS_S * 1000 + 1;
        assert_eq!(decide(&edited, None, later), Decision::Skip(Why::Old));
    }

    #[test]
    fn an_edit_that_came_before_fan_out_saw_the_article_is_news() {
        let edited = article()
            .edited(
                Draft {
                    title: "u".into(),
                    category: "art".into(),
                    ..Draft::default()
                },
                NOW + 9,
            )
            .unwrap();
        assert!(matches!(decide(&edited, None, NOW + 10), Decision::Notify(_)));
    }

    #[test]
    fn a_retraction_withdraws_from_everybody_who_may_have_been_told() {
        let edited = article()
            .edited(
                Draft {
                    title: "u".into(),
                    category: "art".into(),
                    ..Draft::default()
                },
                NOW,
            )
            .unwrap();
        let done = progress(Phase::Notified, Some("zoe"));
        let Decision::Withdraw(work) = decide(&edited.retracted(NOW), Some(&done), NOW) else {
            panic!("somebody was told")
        };
        let texts: Vec<String> = work.filters.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["author:ann", "category:art", "category:sports", "tag:ski", "tag:snow"]
        );
        assert_eq!(work.after_user, None);
    }

    #[test]
    fn a_retraction_of_what_is_no_longer_remembered_withdraws_and_one_that_is_done_is_left_alone() {
        let retracted = article().retracted(NOW);
        let everybody = Work {
            filters: article().filters(),
            after_user: None,
            n_users: 0,
        };
        assert_eq!(decide(&retracted, None, NOW), Decision::Withdraw(everybody));
        let done = progress(Phase::Withdrawn, None);
        assert_eq!(decide(&retracted, Some(&done), NOW), Decision::Skip(Why::Done));
    }
}
