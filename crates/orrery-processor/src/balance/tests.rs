use super::world::World;
use super::*;
use crate::lease::{FeedMode, Incarnation};
use crate::range::EpkRange;

fn mark(name: &str) -> HostMark {
    HostMark {
        name: name.into(),
        incarnation: Incarnation {
            started_ms: 5,
            chance: 1,
        },
    }
}

fn lease(n: usize, owner: Option<&HostMark>) -> Lease {
    let lease = Lease::for_range(format!("u..{n}"), EpkRange::full(), FeedMode::LatestVersion);
    let mut lease = Lease {
        token: n.to_string(),
        ..lease
    };
    if let Some(owner) = owner {
        lease = lease.acquired(owner, Takeover::Clean, "t");
    }
    Lease {
        etag: Some(format!("e{n}")),
        written_at_s: Some(1_000),
        ..lease
    }
}

fn dotnet(mut lease: Lease) -> Lease {
    lease.properties.clear();
    lease
}

struct Case {
    listing: Listing,
    watch: Watch,
    now: Duration,
}

impl Case {
    fn new(leases: Vec<Lease>) -> Case {
        let listing = Listing {
            leases,
            wants: vec![],
            server_now_ms: Some(1_000_000),
        };
        Case {
            listing,
            watch: Watch::default(),
            now: Duration::ZERO,
        }
    }

    fn decide(&mut self, running: &[&str]) -> Vec<LeaseAction> {
        self.watch.note(&self.listing, self.now, self.now);
        let running = running.iter().map(|id| (*id).to_owned()).collect();
        balance(
            &self.listing,
            &self.watch,
            &running,
            &mark("me"),
            self.now,
            &BalanceSettings::default(),
        )
    }
}

fn n_takes(actions: &[LeaseAction], wanted: Why) -> usize {
    actions
        .iter()
        .filter(|action| matches!(action, LeaseAction::Take { why, .. } if *why == wanted))
        .count()
}

#[test]
fn a_lone_host_takes_every_free_lease() {
    let actions = Case::new((0..12).map(|n| lease(n, None)).collect()).decide(&[]);
    assert_eq!(n_takes(&actions, Why::Free), 12);
}

#[test]
fn a_newcomer_asks_hosts_of_its_kind_for_half() {
    let a = mark("a");
    let actions = Case::new((0..12).map(|n| lease(n, Some(&a))).collect()).decide(&[]);
    let n_asks = actions
        .iter()
        .filter(|action| matches!(action, LeaseAction::Ask { .. }))
        .count();
    assert_eq!((n_asks, actions.len()), (6, 6));
}

#[test]
fn a_newcomer_robs_another_kind_of_host_of_one_lease_per_cycle() {
    let a = mark("a");
    let mut case = Case::new((0..12).map(|n| dotnet(lease(n, Some(&a)))).collect());
    assert_eq!(n_takes(&case.decide(&[]), Why::Stolen), 1);
    // Its share changed since: it is left alone for a cycle.
    case.listing.leases[0].owner = Some("b".into());
    assert_eq!(n_takes(&case.decide(&[]), Why::Stolen), 0);
    assert_eq!(n_takes(&case.decide(&[]), Why::Stolen), 1);
}

#[test]
fn nobody_takes_from_a_host_that_has_only_one_more() {
    let (a, me) = (mark("a"), mark("me"));
    let leases = (0..5).map(|n| lease(n, Some(if n < 3 { &a } else { &me }))).collect();
    assert_eq!(Case::new(leases).decide(&["u..3", "u..4"]), []);
}

#[test]
fn an_owner_gives_what_is_asked_until_both_have_the_same() {
    let (a, me) = (mark("a"), mark("me"));
    let mut case = Case::new((0..4).map(|n| lease(n, Some(&me))).collect());
    let want = |n: usize| Want {
        token: n.to_string(),
        by: a.clone(),
        written_at_s: Some(1_000),
    };
    case.listing.wants = (0..4).map(want).collect();
    let actions = case.decide(&["u..0", "u..1", "u..2", "u..3"]);
    let given = actions
        .iter()
        .filter(|action| matches!(action, LeaseAction::HandOver { to, .. } if *to == a));
    assert_eq!((given.count(), actions.len()), (2, 2));
}

#[test]
fn a_request_nobody_answers_for_two_cycles_becomes_a_theft() {
    let (a, me) = (mark("a"), mark("me"));
    let mut case = Case::new((0..2).map(|n| lease(n, Some(&a))).collect());
    case.listing.wants = vec![Want {
        token: "0".into(),
        by: me,
        written_at_s: Some(1_000),
    }];
    assert_eq!(case.decide(&[]), []);
    case.now = Duration::from_secs(25);
    assert_eq!(case.decide(&[]), []);
    case.now = Duration::from_secs(26);
    assert_eq!(n_takes(&case.decide(&[]), Why::Stolen), 1);
}

#[test]
fn a_request_that_makes_no_sense_any_more_is_withdrawn() {
    let (a, me) = (mark("a"), mark("me"));
    let mut case = Case::new(vec![lease(0, Some(&a)), lease(1, Some(&me))]);
    case.listing.wants = vec![Want {
        token: "0".into(),
        by: me,
        written_at_s: Some(1_000),
    }];
    assert_eq!(case.decide(&["u..1"]), [LeaseAction::Withdraw { token: "0".into() }]);
}

#[test]
fn a_lease_expires_by_the_servers_clock_and_only_if_it_did_not_change() {
    let a = mark("a");
    let mut case = Case::new(vec![lease(0, Some(&a))]);
    // 60 s of expiry, and one second because the server's stamp is rounded down.
    case.listing.server_now_ms = Some(1_060_999);
    assert_eq!(n_takes(&case.decide(&[]), Why::Expired), 0);
    case.listing.server_now_ms = Some(1_061_000);
    assert_eq!(n_takes(&case.decide(&[]), Why::Expired), 1);
    case.listing.leases[0].etag = Some("renewed".into());
    assert_eq!(n_takes(&case.decide(&[]), Why::Expired), 0);
}

#[test]
fn a_lease_expires_without_any_clock_but_ours_when_it_was_watched_for_the_expiry() {
    let a = mark("a");
    let mut case = Case::new(vec![lease(0, Some(&a))]);
    case.listing.server_now_ms = None;
    assert_eq!(case.decide(&[]), []);
    case.now = Duration::from_millis(59_999);
    assert_eq!(case.decide(&[]), []);
    case.now = Duration::from_secs(60);
    assert_eq!(n_takes(&case.decide(&[]), Why::Expired), 1);
}

#[test]
fn what_a_listing_itself_takes_counts_for_no_ones_expiry() {
    let a = mark("a");
    let mut case = Case::new(vec![lease(0, Some(&a))]);
    case.listing.server_now_ms = None;
    let liveness = |case: &Case| {
        let lease = &case.listing.leases[0];
        case.watch.liveness(lease, &case.listing, Duration::from_secs(60))
    };
    let at = Duration::from_secs;
    case.watch.note(&case.listing, at(0), at(70));
    assert_eq!(liveness(&case), Liveness::Live, "it may have been written at 69 s");
    case.watch.note(&case.listing, at(71), at(140));
    assert_eq!(
        liveness(&case),
        Liveness::Live,
        "and both may have seen it within two seconds"
    );
    case.watch.note(&case.listing, at(130), at(135));
    assert_eq!(liveness(&case), Liveness::Expired);
}

#[test]
fn leases_left_by_a_process_of_our_name_are_adopted_at_once() {
    let mut earlier = mark("me");
    earlier.incarnation.started_ms = 1;
    let actions = Case::new(vec![lease(0, Some(&earlier)), lease(1, Some(&mark("me")))]).decide(&[]);
    let take = |n: usize, how| LeaseAction::Take {
        id: format!("u..{n}"),
        why: Why::Ours,
        how,
    };
    assert_eq!(actions, [take(0, Takeover::AfterCrash), take(1, Takeover::Clean)]);
}

#[test]
fn a_lease_that_was_taken_from_us_is_let_go_before_it_is_taken_again() {
    let mut case = Case::new(vec![lease(0, None), lease(1, None)]);
    let check = |n: usize| LeaseAction::Check { id: format!("u..{n}") };
    let actions = case.decide(&["u..0", "u..7"]);
    assert!(
        actions.contains(&check(0)) && actions.contains(&check(7)),
        "{actions:?}"
    );
    let taken: Vec<&LeaseAction> = actions
        .iter()
        .filter(|action| matches!(action, LeaseAction::Take { .. }))
        .collect();
    assert!(
        matches!(taken.as_slice(), [LeaseAction::Take { id, .. }] if id == "u..1"),
        "{taken:?}"
    );
}

#[test]
fn a_later_process_of_our_name_that_renews_stops_us() {
    let mut later = mark("me");
    later.incarnation.started_ms = 9;
    let mut case = Case::new(vec![lease(0, Some(&later)), lease(1, None)]);
    assert_eq!(
        case.decide(&[]),
        [],
        "it may be alive or dead; until that is known, nothing is taken"
    );
    case.listing.leases[0].etag = Some("renewed".into());
    assert_eq!(case.decide(&[]), [LeaseAction::StopForNamesake { id: "u..0".into() }]);
}

#[test]
fn a_later_process_of_our_name_that_takes_our_lease_stops_us() {
    let mut later = mark("me");
    later.incarnation.started_ms = 9;
    let mut case = Case::new(vec![lease(0, Some(&mark("me"))), lease(1, Some(&mark("me")))]);
    assert_eq!(n_takes(&case.decide(&[]), Why::Ours), 2);
    case.listing.leases[1] = Lease {
        etag: Some("taken".into()),
        ..lease(1, Some(&later))
    };
    let actions = case.decide(&["u..0", "u..1"]);
    assert_eq!(actions, [LeaseAction::StopForNamesake { id: "u..1".into() }]);
}

#[test]
fn expired_leases_of_a_process_of_our_name_are_ours_whatever_its_clock_said() {
    let mut later = mark("me");
    later.incarnation.started_ms = 9;
    let mut case = Case::new(vec![lease(0, Some(&later)), lease(1, Some(&later))]);
    let written = case.listing.leases[0].written_at_s.unwrap();
    case.listing.server_now_ms = Some((written + 61) * 1000);
    assert_eq!(n_takes(&case.decide(&[]), Why::Ours), 2);
}

#[test]
fn a_lease_that_a_host_of_another_kind_took_from_ours_is_not_asked_for() {
    let robbed = |n: usize| Lease {
        owner: Some("dotnet".into()),
        ..lease(n, Some(&mark("rust")))
    };
    let mut case = Case::new((0..4).map(robbed).collect());
    let actions = case.decide(&[]);
    assert_eq!((actions.len(), n_takes(&actions, Why::Stolen)), (1, 1), "{actions:?}");
}

#[test]
fn limits_are_respected() {
    let mut case = Case::new((0..12).map(|n| lease(n, None)).collect());
    case.watch.note(&case.listing, case.now, case.now);
    let decide = |settings: BalanceSettings| {
        let (running, me) = (BTreeSet::new(), mark("me"));
        balance(&case.listing, &case.watch, &running, &me, case.now, &settings).len()
    };
    let settings = BalanceSettings::default();
    assert_eq!(
        decide(BalanceSettings {
            leases_max: Some(5),
            ..settings.clone()
        }),
        5
    );
    assert_eq!(
        decide(BalanceSettings {
            takes_per_cycle: 3,
            ..settings
        }),
        3
    );
}

#[test]
fn one_hundred_and_twenty_eight_leases_spread_over_four_hosts_within_three_cycles() {
    let mut world = World::new(128, 1);
    world.cycles(2);
    assert_eq!(world.counts(), [128]);
    (0..3).for_each(|_| world.join());
    world.cycles(3);
    assert_eq!(world.counts(), [32, 32, 32, 32]);
}

#[test]
fn counts_stay_within_one_as_hosts_come_and_go() {
    let mut world = World::new(12, 1);
    world.cycles(2);
    for n_hosts in 2..=4 {
        world.join();
        world.cycles(4);
        let counts = world.counts();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(counts.len() == n_hosts && most - least <= 1, "{counts:?}");
    }
    for n_hosts in (1..4).rev() {
        world.leave();
        world.cycles(2);
        let counts = world.counts();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(counts.len() == n_hosts && most - least <= 1, "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 12);
    }
}

#[test]
fn more_hosts_than_leases_leave_the_extras_idle_until_one_dies() {
    let mut world = World::new(2, 4);
    world.cycles(4);
    assert_eq!(world.counts().iter().filter(|count| **count == 1).count(), 2);
    let working = world.counts().iter().position(|count| *count == 1).unwrap();
    world.crash(working);
    world.cycles(8);
    assert_eq!(world.counts().iter().sum::<usize>(), 2);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Cycle(usize),
        Renew(usize),
        Pause(usize),
        Resume(usize),
        Join,
        Crash(usize),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0usize..6).prop_map(Step::Cycle),
            8 => (0usize..6).prop_map(Step::Renew),
            1 => (0usize..6).prop_map(Step::Pause),
            1 => (0usize..6).prop_map(Step::Resume),
            1 => Just(Step::Join),
            1 => (0usize..6).prop_map(Step::Crash),
            6 => (100u64..20_000).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn no_two_hosts_ever_read_one_lease(steps in prop::collection::vec(step(), 1..150), n in 1usize..20) {
            let mut world = World::new(n, 2);
            for step in steps {
                match step {
                    Step::Cycle(host) => world.cycle(host),
                    Step::Renew(host) => world.renew(host),
                    Step::Pause(host) => world.pause(host),
                    Step::Resume(host) => world.resume(host),
                    Step::Join => world.join(),
                    Step::Crash(host) => world.crash(host),
                    Step::Pass(ms) => world.pass(Duration::from_millis(ms)),
                }
                prop_assert_eq!(world.read_twice(), None::<String>);
            }
        }

        #[test]
        fn a_unit_comes_to_rest_with_equal_shares(n_leases in 1usize..60, n_hosts in 1usize..7) {
            let mut world = World::new(n_leases, n_hosts);
            world.cycles(10);
            let counts = world.counts();
            prop_assert_eq!(counts.iter().sum::<usize>(), n_leases);
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            let before = world.clone_leases();
            world.cycles(5);
            prop_assert_eq!(before, world.clone_leases());
        }
    }
}
