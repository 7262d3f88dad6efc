//! A large audience: served page by page in bounded memory, and to the end however often the process that serves it is killed.
//!
//! The role runs in processes of its own, which are this test binary started anew, so that they can be killed and measured.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use azure_data_cosmos::models::TransactionalBatch;
use futures::StreamExt as _;
use orrery_publishing::account::{ReadAt, Scope};
use orrery_publishing::entity::{Entity as _, Notification, Subscription, SubscriptionState};
use orrery_publishing::fanout::decide::{Phase, Progress};
use orrery_publishing::fanout::{Fanout, FanoutSettings};
use orrery_publishing::filter::Filter;
use orrery_publishing::ids;
use orrery_publishing::processor::LeaseTiming;
use orrery_publishing::{AccountSettings, ContentPublishDatabase};

use crate::world::{World, draft, fast, patient, table, until, until_titles};

/// Endpoints of the accounts, for a process that is a role. Others leave it alone.
const ACCOUNTS: &str = "ORRERY_TEST_ROLE_ACCOUNTS";
/// What a role may need beyond what it needs when it has nothing to do, however large the audience.
const MEMORY_MAX: u64 = 64 << 20;
/// How long a role may take to catch up.
const PATIENCE: Duration = Duration::from_secs(180);
const PATIENCE_SOAK: Duration = Duration::from_secs(3600);
/// How often it is asked whether a role has caught up: each time takes many requests, of a server that has enough to do.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_SOAK: Duration = Duration::from_secs(2);
/// Subscribers whose notifications are listed at a time.
const SLICE: usize = 5_000;

fn is_soak() -> bool {
    std::env::var_os("ORRERY_SOAK").is_some()
}

fn n_users() -> usize {
    // A few, but so many that a quick machine is not done before the role is killed.
    if is_soak() { 100_000 } else { 4_000 }
}

/// In a soak as it runs in earnest, with leases that a busy machine does not lose: whoever loses one begins anew where it last
/// saved, which would count as a kill. Otherwise in steps so small that there are many.
fn settings() -> FanoutSettings {
    if is_soak() {
        return FanoutSettings {
            lease_timing: LeaseTiming {
                acquire: Duration::from_secs(2),
                renew: Duration::from_secs(4),
                expiry: Duration::from_secs(20),
                lock: Duration::from_secs(10),
            },
            ..fast()
        };
    }
    FanoutSettings {
        page: 50,
        in_flight: 20,
        save_every: 50,
        spread_above: 300,
        buckets: 4,
        ..fast()
    }
}

/// In a soak so patient that a server with too much to do does not make the role begin anew.
fn accounts() -> AccountSettings {
    let seconds = if is_soak() { 30 } else { 0 };
    AccountSettings {
        read_deadline: patient().read_deadline + Duration::from_secs(seconds),
        write_deadline: patient().write_deadline + Duration::from_secs(seconds),
        ..patient()
    }
}

fn user(number: usize) -> String {
    format!("user {number:06}")
}

/// Subscribers, written a hundred at a time: they share a partition key.
async fn subscribe_many(database: &ContentPublishDatabase, filter: &str) {
    let (filter, account) = (Filter::parse(filter).unwrap(), database.local());
    let container = &account.connected().await.unwrap().content;
    let users: Vec<String> = (0..n_users()).map(user).collect();
    let batches = users.chunks(100).map(|users| {
        let mut batch = TransactionalBatch::new(filter.to_string());
        for user in users {
            let subscription = Subscription::new(user, filter.clone(), 0, account.tag(), 1);
            batch = batch.create_item(subscription.document()).unwrap();
        }
        async move { container.execute_transactional_batch(batch, None).await.unwrap() }
    });
    let written: Vec<_> = futures::stream::iter(batches).buffer_unordered(8).collect().await;
    assert_eq!(written.len(), n_users().div_ceil(100));
}

/// A role that is a process, killed when it is dropped.
struct RoleProcess(Child);

impl RoleProcess {
    fn start(world: &World) -> RoleProcess {
        let endpoints: Vec<&str> = world.servers.iter().map(|server| server.endpoint.as_str()).collect();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "large::the_role_in_a_process_of_its_own"])
            .env(ACCOUNTS, endpoints.join(" "))
            // Its end is the parent's: the role ends with the test, however that ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        RoleProcess(child.unwrap())
    }

    /// A line of its memory, in bytes: `VmRSS` now, `VmHWM` at most so far.
    fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// As `kill -9`: nothing is finished, saved or released.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_in_a_process_of_its_own() {
    // Among the other tests it has nothing to do: the test below starts it as a process, and kills it.
    let Ok(endpoints) = std::env::var(ACCOUNTS) else {
        return;
    };
    let endpoints: Vec<&str> = endpoints.split(' ').collect();
    let database = ContentPublishDatabase::new(table(&endpoints), "West US", &accounts()).unwrap();
    let role = Fanout::new(&database, settings()).start();
    let parent = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = parent.await.unwrap();
    role.stop().await;
}

async fn progress(database: &ContentPublishDatabase, article: &str) -> Option<Progress> {
    let id = ids::progress_id("usa", article);
    let seen = database.local().read_coordination(&id).await;
    seen.ok().map(|seen| seen.value)
}

/// Waits until at least so many are served and written down.
async fn until_served(database: &ContentPublishDatabase, article: &str, n_wanted: usize) {
    let mut n_before = 0;
    loop {
        // Large audiences take their time; what counts is that there is progress.
        until("more are served", async || {
            let served = progress(database, article).await;
            served.is_some_and(|served| {
                served.n_users > n_before || served.phase == Phase::Notified || served.n_users >= n_wanted as u64
            })
        })
        .await;
        let served = progress(database, article).await.unwrap();
        if served.n_users >= n_wanted as u64 || served.phase == Phase::Notified {
            return;
        }
        n_before = served.n_users;
    }
}

/// Whom the account has notifications for, as they are stored, with repetitions.
async fn notified(database: &ContentPublishDatabase, article: &str) -> Vec<String> {
    let text = "SELECT VALUE c.UserId FROM c WHERE c.Type = @type AND c.ArticleId = @article AND c.UserId >= @from \
                AND c.UserId < @end";
    let mut users = Vec::new();
    for from in (0..n_users()).step_by(SLICE) {
        let parameters = [
            ("@type", Notification::TYPE.into()),
            ("@article", article.into()),
            ("@from", user(from).into()),
            ("@end", user(from + SLICE).into()),
        ];
        let found = database.local().query(text, &parameters, Scope::Everything).await;
        let mut found: Vec<String> = found.unwrap().value;
        users.append(&mut found);
    }
    users
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_audience_is_served_in_bounded_memory_and_to_the_end_although_the_role_is_killed_twice() {
    let world = World::with(2, 0).await;
    let [usa, ..] = world.databases();
    let look = Fanout::new(&usa, settings());
    subscribe_many(&usa, "sports").await;
    let mut role = RoleProcess::start(&world);
    // The role also lists for each of them what they follow, as if nobody else had.
    until_caught_up(&look).await;
    let idle = role.memory("VmRSS");
    let begun = Instant::now();
    let article = usa
        .publish_article("ann", draft("sports", "Snow"), None)
        .await
        .unwrap()
        .article;
    let n_created = world.servers[0].n_requests("create_item");
    let mut most = 0;
    for part in [n_users() / 4, n_users() / 2] {
        until_served(&usa, &article.id, part).await;
        most = most.max(role.memory("VmHWM"));
        role.kill();
        let served = progress(&usa, &article.id).await.unwrap();
        assert_eq!(served.phase, Phase::Notifying, "it was killed in the middle");
        role = RoleProcess::start(&world);
    }
    until_served(&usa, &article.id, usize::MAX).await;
    let took = begun.elapsed();
    until_caught_up(&look).await;
    most = most.max(role.memory("VmHWM"));

    let users = notified(&usa, &article.id).await;
    let once: BTreeSet<&String> = users.iter().collect();
    let everybody: Vec<String> = (0..n_users()).map(user).collect();
    assert!(
        once.iter().copied().eq(everybody.iter()) && users.len() == n_users(),
        "{} notifications for {} users",
        users.len(),
        once.len()
    );
    // Each time what was not written down is done again, not more: a save, and what was under way.
    let settings = settings();
    let n_again = world.servers[0].n_requests("create_item") - n_created - n_users() as u64;
    let n_again_max = 2 * (settings.save_every + 2 * settings.in_flight) as u64;
    assert!(n_again <= n_again_max, "{n_again} of {n_again_max} were done again");
    assert!(most < idle + MEMORY_MAX, "{most} bytes, {idle} when idle");
    eprintln!(
        "{} notifications in {took:?} ({:.0}/s), killed twice, {n_again} done again; {} MB at most, {} MB when idle",
        n_users(),
        n_users() as f64 / took.as_secs_f64(),
        most >> 20,
        idle >> 20
    );
}

/// Waits until a role has read everything, whichever process it is. What it writes itself it reads as well, so more may wait before
/// less does.
async fn until_caught_up(look: &Fanout) {
    let patience = if is_soak() { PATIENCE_SOAK } else { PATIENCE };
    let deadline = Instant::now() + patience;
    loop {
        let states = look.states().await;
        if states.iter().all(|state| state.waiting == Some(0)) {
            return;
        }
        assert!(Instant::now() < deadline, "not within {patience:?}: {states:?}");
        tokio::time::sleep(if is_soak() { LOOK_SOAK } else { LOOK }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_what_many_follow_goes_to_a_bucket_and_is_found_there() {
    let world = World::with(2, 0).await;
    let [usa, ..] = world.databases();
    let role = Fanout::new(&usa, fast()).start();
    usa.create_subscription("early", "sports").await.unwrap();
    usa.spread_filter(&Filter::parse("sports").unwrap(), 4).await.unwrap();
    usa.create_subscription("late", "sports").await.unwrap();
    let key = Filter::parse("sports").unwrap().partition_key("late", 4);
    let id = ids::subscription_id("late", "category:sports");
    let stored = usa.local().read::<Subscription>(&key, &id, ReadAt::Near).await.unwrap();
    assert_eq!(stored.value.buckets, 4);
    usa.publish_article("ann", draft("sports", "Ice"), None).await.unwrap();
    until_titles(&usa, "late", &["Ice"]).await;
    until_titles(&usa, "early", &["Ice"]).await;
    usa.delete_subscription("late", "sports").await.unwrap();
    let stored = usa.local().read::<Subscription>(&key, &id, ReadAt::Near).await.unwrap();
    assert_eq!(stored.value.state, SubscriptionState::Cancelled);
    role.stop().await;
}
