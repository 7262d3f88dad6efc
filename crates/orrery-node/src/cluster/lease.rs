//! Who of several nodes owns the logs: decided from what the nodes see of one shared record, without comparing clocks.
//!
//! The record names a holder and is written anew with every renewal, under the condition that nobody else has written
//! meanwhile. Whoever waits counts the time since it first saw the present version by its own clock; the holder counts from
//! before it asked for the version it wrote. So the holder gives up before anybody else thinks that it should, as long as
//! clocks run at about the same speed. Even if they do not, nothing is lost: the logs fence whoever was replaced.
//!
//! Time is an argument: how long ago the node started.

use std::time::Duration;

/// How leases are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How often the holder renews.
    pub renew: Duration,
    /// How long a lease that is not renewed holds.
    pub expiry: Duration,
}

impl Times {
    /// How long the holder relies on a version it asked for: a little less than the others wait.
    fn reliance(&self) -> Duration {
        self.expiry - self.expiry / 10
    }
}

/// The shared record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `None`: it was given back.
    pub holder: Option<String>,
    /// Rises with every holder.
    pub term: u64,
    /// Has the holder opened everything?
    pub serving: bool,
}

/// A version of the record, as whoever keeps it numbers them.
pub type Revision = u64;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write this in the place of that version (`None`: there is no record), and tell with [`Tenancy::wrote`] what came of it.
    Write {
        lease: Lease,
        over: Option<Revision>,
    },
    /// Stop at once to act as the holder.
    StepDown,
    Wait,
}

#[derive(Clone, Debug)]
struct Seen {
    lease: Lease,
    revision: Revision,
    /// When this version was first seen.
    since: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    term: u64,
    serving: bool,
    /// `None` when a write of ours may have replaced the version we knew.
    revision: Option<Revision>,
    /// Relied on until then.
    until: Duration,
    renew_at: Duration,
}

/// What one node knows about the lease.
#[derive(Clone, Debug)]
pub struct Tenancy {
    me: String,
    times: Times,
    /// Whether this node takes a lease that is free.
    willing: bool,
    seen: Option<Seen>,
    held: Option<Held>,
    lost: bool,
    /// The highest term that is known to have been. The record may be removed; terms rise all the same.
    term_max: u64,
    /// Since when there has been no record, as far as this node has looked.
    missing_since: Option<Duration>,
}

impl Tenancy {
    pub fn new(me: &str, times: Times) -> Tenancy {
        Tenancy {
            me: me.to_owned(),
            times,
            willing: true,
            seen: None,
            held: None,
            lost: false,
            term_max: 0,
            missing_since: None,
        }
    }

    /// There has been a holder in this term.
    pub fn rise_above(&mut self, term: u64) {
        self.term_max = self.term_max.max(term);
    }

    /// Whether this node takes the lease when it is free.
    pub fn set_willing(&mut self, willing: bool) {
        self.willing = willing;
    }

    /// Whether the node may act as the holder.
    pub fn holds(&self, now: Duration) -> bool {
        self.held_until().is_some_and(|until| now < until)
    }

    /// Until when the node may act as the holder.
    pub fn held_until(&self) -> Option<Duration> {
        self.held.map(|held| held.until)
    }

    /// The term in which the node may act as the holder.
    pub fn term(&self, now: Duration) -> Option<u64> {
        self.held.filter(|held| now < held.until).map(|held| held.term)
    }

    /// The record as it was last seen.
    pub fn lease(&self) -> Option<&Lease> {
        self.seen.as_ref().map(|seen| &seen.lease)
    }

    /// The record was read.
    pub fn observe(&mut self, found: Option<(Lease, Revision)>, now: Duration) {
        let Some((lease, revision)) = found else {
            self.seen = None;
            self.missing_since.get_or_insert(now);
            self.lose_held();
            return;
        };
        if self.seen.as_ref().is_some_and(|seen| revision < seen.revision) {
            // An answer from before what is known.
            return;
        }
        self.missing_since = None;
        self.rise_above(lease.term);
        if self.seen.as_ref().is_none_or(|seen| seen.revision != revision) {
            self.seen = Some(Seen {
                lease: lease.clone(),
                revision,
                since: now,
            });
        }
        let Some(held) = &mut self.held else { return };
        let is_ours = lease.holder.as_deref() == Some(&*self.me) && lease.term == held.term;
        match is_ours {
            true => held.revision = Some(revision),
            false => self.lose_held(),
        }
    }

    fn lose_held(&mut self) {
        self.lost |= self.held.take().is_some();
    }

    /// A write that [`Tenancy::next`] asked for at `asked` was stored as this version.
    pub fn wrote(&mut self, lease: Lease, revision: Revision, asked: Duration) {
        let is_mine = lease.holder.as_deref() == Some(&*self.me);
        self.missing_since = None;
        self.rise_above(lease.term);
        self.held = is_mine.then(|| Held {
            term: lease.term,
            serving: lease.serving,
            revision: Some(revision),
            until: asked + self.times.reliance(),
            renew_at: asked + self.times.renew,
        });
        self.seen = Some(Seen {
            lease,
            revision,
            since: asked,
        });
    }

    /// Nobody knows whether a write was stored; the record has to be read before the next.
    pub fn unsure(&mut self) {
        if let Some(held) = &mut self.held {
            held.revision = None;
        }
    }

    /// Everything is open: to be told to the others with the next renewal, which is due now.
    pub fn serve(&mut self, now: Duration) {
        if let Some(held) = &mut self.held {
            held.serving = true;
            held.renew_at = now;
        }
    }

    /// What gives the lease back, if it is held.
    pub fn release(&self) -> Option<(Lease, Revision)> {
        let held = self.held?;
        let lease = Lease {
            holder: None,
            term: held.term,
            serving: false,
        };
        Some((lease, held.revision?))
    }

    /// What to do now. Whoever is told to step down has done so before asking again.
    pub fn next(&mut self, now: Duration) -> Step {
        if std::mem::take(&mut self.lost) {
            return Step::StepDown;
        }
        match self.held {
            Some(held) if now >= held.until => {
                self.held = None;
                Step::StepDown
            }
            Some(held) => self.renewal(held, now),
            None => self.claim(now),
        }
    }

    fn renewal(&self, held: Held, now: Duration) -> Step {
        match held.revision {
            Some(revision) if now >= held.renew_at => Step::Write {
                lease: Lease {
                    holder: Some(self.me.clone()),
                    term: held.term,
                    serving: held.serving,
                },
                over: Some(revision),
            },
            _ => Step::Wait,
        }
    }

    fn claim(&self, now: Duration) -> Step {
        if !self.willing {
            return Step::Wait;
        }
        let mine = || Lease {
            holder: Some(self.me.clone()),
            term: self.term_max + 1,
            serving: false,
        };
        let Some(seen) = &self.seen else {
            // Whoever held a record that was removed relies on it for a while.
            let is_over = |since| now >= since + self.times.expiry;
            return match self.term_max == 0 || self.missing_since.is_some_and(is_over) {
                true => Step::Write {
                    lease: mine(),
                    over: None,
                },
                false => Step::Wait,
            };
        };
        let is_free = match &seen.lease.holder {
            None => true,
            // From a write of ours whose answer was lost, or one that we gave up.
            Some(holder) if *holder == self.me => true,
            Some(_) => now >= seen.since + self.times.expiry,
        };
        match is_free {
            true => Step::Write {
                lease: mine(),
                over: Some(seen.revision),
            },
            false => Step::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: Times = Times {
        renew: Duration::from_millis(700),
        expiry: Duration::from_millis(2500),
    };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// The record, and nodes that act on it.
    #[derive(Default)]
    struct Record(Option<(Lease, Revision)>, Revision);

    impl Record {
        fn write(&mut self, lease: Lease, over: Option<Revision>) -> Option<Revision> {
            let current = self.0.as_ref().map(|(_, revision)| *revision);
            if current != over {
                return None;
            }
            self.1 += 1;
            self.0 = Some((lease, self.1));
            Some(self.1)
        }
    }

    /// One look at the record and one step; answers whether the node was told to step down.
    fn turn(node: &mut Tenancy, record: &mut Record, now: Duration) -> bool {
        node.observe(record.0.clone(), now);
        match node.next(now) {
            Step::Write { lease, over } => {
                if let Some(revision) = record.write(lease.clone(), over) {
                    node.wrote(lease, revision, now);
                }
                false
            }
            Step::StepDown => true,
            Step::Wait => false,
        }
    }

    #[test]
    fn the_first_node_takes_the_lease_and_keeps_it_by_renewing() {
        let (mut record, mut a, mut b) = (Record::default(), Tenancy::new("a", TIMES), Tenancy::new("b", TIMES));
        for step in 0..200 {
            assert!(!turn(&mut a, &mut record, ms(step * 100)));
            assert!(!turn(&mut b, &mut record, ms(step * 100)));
            assert!(a.holds(ms(step * 100)));
            assert!(!b.holds(ms(step * 100)));
        }
    }

    #[test]
    fn a_holder_that_falls_silent_gives_up_before_another_takes_over() {
        let (mut record, mut a, mut b) = (Record::default(), Tenancy::new("a", TIMES), Tenancy::new("b", TIMES));
        turn(&mut a, &mut record, ms(0));
        turn(&mut b, &mut record, ms(0));
        let until = a.held_until().unwrap();
        let taken = (0..).map(|step| ms(step * 10)).find(|now| {
            turn(&mut b, &mut record, *now);
            b.holds(*now)
        });
        assert!(until < taken.unwrap(), "{until:?} {taken:?}");
        assert_eq!(taken, Some(TIMES.expiry));
        // Back from its silence, the old holder is told at once.
        assert!(turn(&mut a, &mut record, ms(3000)));
        assert!(!a.holds(ms(3000)));
    }

    #[test]
    fn a_lease_that_is_given_back_is_taken_at_once() {
        let (mut record, mut a, mut b) = (Record::default(), Tenancy::new("a", TIMES), Tenancy::new("b", TIMES));
        turn(&mut a, &mut record, ms(0));
        turn(&mut b, &mut record, ms(0));
        a.set_willing(false);
        let (lease, over) = a.release().unwrap();
        let revision = record.write(lease.clone(), Some(over)).unwrap();
        a.wrote(lease, revision, ms(100));
        assert!(!turn(&mut a, &mut record, ms(101)));
        assert!(!a.holds(ms(101)), "who is not willing takes nothing");
        turn(&mut b, &mut record, ms(102));
        assert!(b.holds(ms(102)));
        assert_eq!(b.lease().unwrap().term, 2);
    }

    #[test]
    fn a_lease_whose_record_was_removed_is_taken_in_a_later_term_once_nobody_relies_on_it() {
        let (mut record, mut a, mut b) = (Record::default(), Tenancy::new("a", TIMES), Tenancy::new("b", TIMES));
        turn(&mut a, &mut record, ms(0));
        turn(&mut b, &mut record, ms(0));
        record.0 = None;
        let until = a.held_until().unwrap();
        let taken = (1..).map(|step| ms(step * 10)).find(|now| {
            turn(&mut b, &mut record, *now);
            b.holds(*now)
        });
        assert!(until < taken.unwrap(), "{until:?} {taken:?}");
        assert_eq!(b.lease().unwrap().term, 2);
        // One that knows only that there was a term goes on after it.
        let (mut record, mut late) = (Record::default(), Tenancy::new("c", TIMES));
        late.rise_above(7);
        turn(&mut late, &mut record, ms(0));
        assert!(!late.holds(ms(0)));
        turn(&mut late, &mut record, TIMES.expiry);
        assert_eq!(late.term(TIMES.expiry), Some(8));
    }

    #[test]
    fn a_renewal_whose_answer_was_lost_is_recognised_when_the_record_is_read() {
        let (mut record, mut a) = (Record::default(), Tenancy::new("a", TIMES));
        turn(&mut a, &mut record, ms(0));
        let Step::Write { lease, over } = a.next(ms(700)) else {
            panic!("a renewal is due")
        };
        record.write(lease, over).unwrap();
        a.unsure();
        assert_eq!(a.next(ms(800)), Step::Wait, "nothing is written blindly");
        assert!(!turn(&mut a, &mut record, ms(900)));
        assert_eq!(a.held_until(), Some(ms(900) + TIMES.reliance()));
    }

    #[test]
    fn who_cannot_reach_the_record_steps_down_in_time() {
        let (mut record, mut a) = (Record::default(), Tenancy::new("a", TIMES));
        turn(&mut a, &mut record, ms(0));
        a.unsure();
        assert_eq!(a.next(ms(2249)), Step::Wait);
        assert_eq!(a.next(ms(2250)), Step::StepDown);
        assert!(!a.holds(ms(2250)));
    }

    proptest! {
        /// Whatever is lost and delayed, two nodes never rely on the lease at the same time.
        #[test]
        fn no_two_nodes_hold_the_lease(turns in proptest::collection::vec((0usize..3, 0u64..900, 0u8..4), 1..300)) {
            let mut record = Record::default();
            let mut nodes = ["a", "b", "c"].map(|name| Tenancy::new(name, TIMES));
            let mut now = Duration::ZERO;
            for (who, pause, luck) in turns {
                now += ms(pause);
                let node = &mut nodes[who];
                if luck > 0 {
                    node.observe(record.0.clone(), now);
                }
                if let Step::Write { lease, over } = node.next(now) {
                    match (luck, record.write(lease.clone(), over)) {
                        (1, _) => node.unsure(),
                        (_, Some(revision)) => node.wrote(lease, revision, now),
                        _ => {}
                    }
                }
                let n_holders = nodes.iter().filter(|node| node.holds(now)).count();
                prop_assert!(n_holders <= 1);
            }
        }
    }
}
