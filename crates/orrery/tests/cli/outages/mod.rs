//! Regions that go away under traffic from everywhere: nobody in another region notices, and afterwards everything is there
//! once. `users` make the traffic, `ledger` keeps what they were told, `audit` compares that with what every region shows.

mod audit;
mod ledger;
mod users;

use std::time::{Duration, Instant};

use ledger::World;
use users::User;

use crate::service::{REGIONS, json_of, up};

/// One way, between any two regions.
const LATENCY_MS: u64 = 80;
const USERS_PER_REGION: usize = 2;

/// How long each region is gone, and how long all are there in between.
fn lengths() -> (Duration, Duration) {
    match std::env::var_os("ORRERY_SOAK") {
        Some(_) => (Duration::from_secs(60), Duration::from_secs(10)),
        None => (Duration::from_secs(3), Duration::from_secs(1)),
    }
}

#[test]
fn each_region_in_turn_goes_away_and_nobody_elsewhere_notices_and_nothing_is_lost_or_doubled() {
    let server = up(&["--memory"]);
    let world = World::of(&server);
    for from in REGIONS {
        for to in REGIONS.iter().filter(|to| **to != from) {
            let link = serde_json::json!({"from": from, "to": to, "latencyMs": LATENCY_MS});
            json_of(world.url(0), "PUT", "/v1/world/links", "", Some(&link));
        }
    }
    let mut users: Vec<User<'_>> = (0..REGIONS.len() * USERS_PER_REGION)
        .map(|number| User::new(&world, number % REGIONS.len(), number))
        .collect();
    users.iter().for_each(User::settle);
    let (gone, between) = lengths();
    std::thread::scope(|scope| {
        // Also when this thread fails: the others would go on for ever.
        let _end = EndOnDrop(&world);
        for user in &mut users {
            scope.spawn(move || user.live());
        }
        for region in 0..REGIONS.len() {
            // Traffic is what these moments are for: there is nothing to wait for but calls.
            world.until_calls(between);
            world.stop(region);
            world.until_calls(gone);
            world.start(region);
        }
        world.until_calls(between);
    });
    let begun = Instant::now();
    audit::check(&world, &users);
    let ledger = world.ledger();
    eprintln!("{}; everything was there after {:?}", ledger.told(), begun.elapsed());
    assert_eq!(ledger.failures, Vec::<String>::new());
    assert!(ledger.n_moved > 0, "somebody had to move");
}

struct EndOnDrop<'a>(&'a World);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
