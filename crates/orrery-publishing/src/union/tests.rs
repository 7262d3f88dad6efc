use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::entity::{Article, Draft, Entity as _, Listing, Notification, Subscription, SubscriptionState};
use crate::filter::Filter;

/// A notification of bob about the article with a number, which was published at that time, as an account has it.
fn notification(account: &str, number: u64, created_at: u64) -> Notification {
    let draft = Draft {
        category: "sports".into(),
        title: "t".into(),
        ..Draft::default()
    };
    let article = Article::new(format!("usa.{number}"), "usa", "ann", draft, number).unwrap();
    let filters = vec![Filter::parse("sports").unwrap()];
    Notification::new("bob", &article, filters, None, account, created_at)
}

type World = BTreeMap<String, Vec<Notification>>;

fn world(accounts: &[(&str, &[u64])]) -> World {
    let account = |(name, numbers): &(&str, &[u64])| {
        let mut rows: Vec<Notification> = numbers.iter().map(|number| notification(name, *number, 1000)).collect();
        rows.sort_by_key(Ordered::sort_key);
        ((*name).to_owned(), rows)
    };
    accounts.iter().map(account).collect()
}

/// One page as the shell reads it: each read gives at most `chunk` rows, accounts that are `down` do not answer.
fn read(world: &World, from: &Continuation, size: usize, chunk: usize, down: &[&str]) -> Finished<Notification> {
    read_failing(world, from, size, chunk, down, 0)
}

/// As [`read`], with accounts that go down after they have answered a number of times.
fn read_failing(
    world: &World,
    from: &Continuation,
    size: usize,
    chunk: usize,
    down: &[&str],
    after_rounds: usize,
) -> Finished<Notification> {
    let names: Vec<String> = world.keys().cloned().collect();
    let mut page = Page::new(&names, from, size);
    for round in 0.. {
        let wanted = page.advance(|_| false);
        if wanted.is_empty() {
            return page.finish();
        }
        for Wanted { lane, account, after } in wanted {
            if round >= after_rounds && down.contains(&account.as_str()) {
                page.leave_out(lane);
                continue;
            }
            let rest: Vec<_> = world[&account]
                .iter()
                .filter(|row| Some(row.sort_key()) > after)
                .collect();
            let rows: Vec<Notification> = rest.iter().take(chunk).map(|row| (*row).clone()).collect();
            let repeats: BTreeSet<String> = page
                .suspects(lane, &rows)
                .into_iter()
                .flat_map(|(other, keys)| {
                    let theirs: BTreeSet<String> = world[&other].iter().map(Ordered::sort_key).collect();
                    keys.into_iter().filter(move |key| theirs.contains(key))
                })
                .collect();
            let has_more = rest.len() > rows.len();
            page.supply(lane, rows, &repeats, has_more);
        }
    }
    unreachable!("rounds do not end")
}

fn numbers(items: &[Notification]) -> Vec<u64> {
    items.iter().map(|item| item.published_at).collect()
}

#[test]
fn pages_come_newest_first_over_all_accounts_until_the_end() {
    let world = world(&[("usa", &[1, 4, 7]), ("europe", &[2, 5]), ("asia", &[3, 6])]);
    let first = read(&world, &Continuation::default(), 4, 2, &[]);
    assert_eq!((numbers(&first.items), &first.missing), (vec![7, 6, 5, 4], &vec![]));
    let second = read(&world, &first.next.unwrap(), 4, 2, &[]);
    assert_eq!((numbers(&second.items), second.next), (vec![3, 2, 1], None));
}

#[test]
fn a_copy_in_two_accounts_is_given_once_and_the_earlier_one_is_kept() {
    let mut world = world(&[("usa", &[1, 2])]);
    world.insert("europe".into(), vec![notification("europe", 2, 500)]);
    let page = read(&world, &Continuation::default(), 10, 10, &[]);
    assert_eq!(numbers(&page.items), [2, 1]);
    assert_eq!(page.items[0].home_account, "europe");
}

#[test]
fn a_copy_that_was_marked_as_read_makes_the_original_read() {
    let (original, mut copy) = (notification("asia", 7, 1000), notification("usa", 7, 2000));
    copy.read_at = Some(3000);
    let world: World = [("asia".to_owned(), vec![original]), ("usa".to_owned(), vec![copy])].into();
    let page = read(&world, &Continuation::default(), 10, 10, &[]);
    let shown: Vec<_> = page.items.iter().map(|item| (item.created_at, item.read_at)).collect();
    assert_eq!(shown, [(1000, Some(3000))]);
}

#[test]
fn a_copy_that_is_still_wanted_shows_a_notification_whose_earlier_copy_is_not() {
    let filter = |text: &str| vec![Filter::parse(text).unwrap()];
    let (mut original, mut copy) = (notification("asia", 7, 1000), notification("usa", 7, 2000));
    (original.matched_filters, copy.matched_filters) = (filter("sports"), filter("author:ann"));
    let world: World = [("asia".to_owned(), vec![original]), ("usa".to_owned(), vec![copy])].into();
    let cancelled = |text: &str| {
        let subscription = Subscription::new("bob", Filter::parse(text).unwrap(), 0, "usa", 1);
        Listing::of(&subscription.with_state(SubscriptionState::Cancelled, 900))
    };
    let shown = |listings: &[Listing]| {
        let cancellations = Cancellations::new(listings);
        let mut page: Page<Notification> = Page::new(&["asia".into(), "usa".into()], &Continuation::default(), 3);
        for Wanted { lane, account, .. } in page.advance(|copies| cancellations.hides(copies)) {
            page.supply(lane, world[&account].clone(), &BTreeSet::new(), false);
        }
        page.advance(|copies| cancellations.hides(copies));
        page.finish().items
    };
    let both = shown(&[cancelled("sports")]);
    let reasons: Vec<String> = both[0].matched_filters.iter().map(ToString::to_string).collect();
    assert_eq!(reasons, ["author:ann", "category:sports"]);
    assert_eq!(shown(&[cancelled("sports"), cancelled("author:ann")]), []);
}

#[test]
fn an_account_that_was_down_joins_later_without_repeating_what_was_given() {
    let mut world = world(&[("usa", &[2, 4, 6, 8]), ("europe", &[])]);
    // 8 and 6 also exist in the account that is down first.
    let mut theirs: Vec<Notification> = [9, 8, 6, 3].map(|number| notification("europe", number, 2000)).into();
    theirs.sort_by_key(Ordered::sort_key);
    world.insert("europe".into(), theirs);
    let first = read(&world, &Continuation::default(), 2, 10, &["europe"]);
    assert_eq!(
        (numbers(&first.items), first.missing),
        (vec![8, 6], vec!["europe".to_owned()])
    );
    let second = read(&world, &first.next.unwrap(), 10, 10, &[]);
    assert_eq!((numbers(&second.items), second.next), (vec![9, 4, 3, 2], None));
}

#[test]
fn a_page_without_an_account_always_leaves_a_way_to_ask_for_the_rest() {
    let world = world(&[("usa", &[1]), ("europe", &[2])]);
    let page = read(&world, &Continuation::default(), 10, 10, &["usa"]);
    let next = page.next.unwrap();
    assert_eq!(numbers(&read(&world, &next, 10, 10, &[]).items), [1]);
}

#[test]
fn what_is_written_between_two_pages_moves_nothing() {
    let mut world = world(&[("usa", &[10, 20, 30, 40])]);
    let first = read(&world, &Continuation::default(), 2, 10, &[]);
    assert_eq!(numbers(&first.items), [40, 30]);
    let rows = world.get_mut("usa").unwrap();
    rows.extend([50, 35, 15].map(|number| notification("usa", number, 1000)));
    rows.sort_by_key(Ordered::sort_key);
    let second = read(&world, &first.next.unwrap(), 10, 10, &[]);
    assert_eq!(numbers(&second.items), [20, 15, 10]);
}

#[test]
fn hidden_rows_do_not_shorten_a_page() {
    let world = world(&[("usa", &[1, 2, 3, 4, 5, 6])]);
    let mut page: Page<Notification> = Page::new(&["usa".to_owned()], &Continuation::default(), 3);
    page.advance(|_| false);
    page.supply(0, world["usa"].clone(), &BTreeSet::new(), false);
    page.advance(|copies| copies[0].published_at % 2 == 0);
    assert_eq!(numbers(&page.finish().items), [5, 3, 1]);
}

proptest! {
    #[test]
    fn every_row_is_given_once_whatever_is_down_when(
        rows in prop::collection::btree_map(0u64..60, 1usize..8, 0..40),
        size in 1usize..9,
        chunk in 1usize..9,
        outages in prop::collection::vec((0usize..4, 0usize..3), 0..12),
    ) {
        let names = ["usa", "europe", "asia"];
        let mut world: World = names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect();
        for (number, mask) in &rows {
            for (index, name) in names.iter().enumerate().filter(|(index, _)| mask & (1 << index) != 0) {
                world.get_mut(*name).unwrap().push(notification(name, *number, 1000 + index as u64));
            }
        }
        world.values_mut().for_each(|rows| rows.sort_by_key(Ordered::sort_key));
        let (mut from, mut seen, mut outages) = (Continuation::default(), Vec::new(), outages.into_iter());
        loop {
            let (index, after_rounds) = outages.next().unwrap_or((names.len(), 0));
            let down: Vec<&str> = names.get(index).into_iter().copied().collect();
            let page = read_failing(&world, &from, size, chunk, &down, after_rounds);
            prop_assert!(page.items.windows(2).all(|pair| pair[0].sort_key() < pair[1].sort_key()));
            seen.extend(page.items.iter().map(|item| item.id().to_owned()));
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
        let distinct: BTreeSet<&String> = seen.iter().collect();
        prop_assert_eq!(distinct.len(), seen.len(), "given twice");
        prop_assert_eq!(distinct.len(), rows.len(), "left out");
    }
}
