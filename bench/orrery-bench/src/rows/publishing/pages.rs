//! A page of a feed and a page of reviews, through the data access layer of one of three regions, among few and many.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use orrery_publishing::ContentPublishDatabase;
use orrery_publishing::database::PageRequest;

use super::world::{NOTIFICATIONS_PER_USER, REVIEWS_PER_ARTICLE, World, article_id, user_name};
use crate::report::Row;
use crate::rows::{Settings, settle};

const P99_GOAL_MS: f64 = 20.0;
const GROWTH_GOAL: f64 = 1.3;
const FACTOR: u64 = 10;
/// Notifications per article.
const PER_ARTICLE: u64 = 10;
/// Pages asked for at the same time: one per core of the smallest machine.
const READERS: u64 = 2;
/// A prime, to go through users and articles in no order.
const STRIDE: u64 = 7_368_787;

/// What a kind of page costs.
#[derive(Clone, Copy, Debug)]
struct Cost {
    p50_ms: f64,
    p99_ms: f64,
    /// Of the accounts, per page.
    cpu_us: f64,
    per_second: f64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cost {
            p50_ms,
            p99_ms,
            cpu_us,
            per_second,
        } = self;
        write!(
            out,
            "p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms, {cpu_us:.0} µs CPU of the accounts, {per_second:.0}/s"
        )
    }
}

/// How much is loaded.
#[derive(Clone, Copy, Debug)]
struct Size {
    n_users: u64,
    n_articles: u64,
}

impl Size {
    fn of(n_notifications: u64) -> Size {
        Size {
            n_users: (n_notifications / NOTIFICATIONS_PER_USER).max(READERS * 3),
            n_articles: (n_notifications / PER_ARTICLE).max(READERS * 3),
        }
    }
}

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let world = World::start(scratch.path(), 3).await?;
    let (small, large) = (
        Size::of(settings.n_notifications / FACTOR),
        Size::of(settings.n_notifications),
    );
    let none = Size {
        n_users: 0,
        n_articles: 0,
    };
    load(&world, none, small).await?;
    let few = measure(&world, small, settings).await?;
    load(&world, small, large).await?;
    let many = measure(&world, large, settings).await?;
    let mut rows = Vec::new();
    for (what, few, many) in [("feed", few.0, many.0), ("review", few.1, many.1)] {
        let named = format!("{what} page, p99, among {} notifications", settings.n_notifications);
        rows.push(Row {
            measured: many.to_string(),
            ..Row::below(&named, many.p99_ms, "ms", P99_GOAL_MS)
        });
        rows.push(Row::at_most(
            &format!("{what} page among {FACTOR} × as much: CPU of the accounts"),
            many,
            format!("1 ×: {few}"),
            many.cpu_us / few.cpu_us,
            GROWTH_GOAL,
        ));
    }
    Ok(rows)
}

/// Fills up from one size to another, and waits until every region has everything and has put it in order.
async fn load(world: &World, from: Size, to: Size) -> Result<()> {
    let begun = Instant::now();
    world.publish(from.n_articles..to.n_articles).await?;
    world.notify(from.n_users..to.n_users).await?;
    let last = (to.n_users - 3..to.n_users).map(user_name);
    for user in last {
        world
            .until("everything is everywhere", async || {
                let mut is_there = true;
                for database in &world.databases {
                    is_there &= feed(database, &user).await.is_ok();
                }
                is_there
            })
            .await?;
    }
    for server in &world.servers {
        settle(server).await?;
    }
    eprintln!("loaded {to:?} in {:?}", begun.elapsed());
    Ok(())
}

/// Feed pages and review pages, after a moment of warming up.
async fn measure(world: &World, size: Size, settings: &Settings) -> Result<(Cost, Cost)> {
    let region = &world.databases[0];
    let feed = async |number: u64| feed(region, &user_name(number % size.n_users)).await;
    let reviews = async |number: u64| {
        let number = number % size.n_articles;
        let page = region
            .read_reviews(&article_id(world.home(number), number), &PageRequest::default())
            .await?;
        ensure!(
            page.items.len() as u64 == REVIEWS_PER_ARTICLE,
            "an article lacks reviews"
        );
        Ok(())
    };
    let length = settings.length * u32::try_from(settings.n_rounds)?;
    cost(world, settings.length, &feed).await?;
    let feeds = cost(world, length, &feed).await?;
    cost(world, settings.length, &reviews).await?;
    let reviews = cost(world, length, &reviews).await?;
    Ok((feeds, reviews))
}

async fn feed(database: &ContentPublishDatabase, user: &str) -> Result<()> {
    let page = database.read_notification_feed(user, &PageRequest::default()).await?;
    ensure!(
        page.items.len() == PageRequest::default().size && page.missing.is_empty(),
        "a feed is not complete"
    );
    Ok(())
}

/// Asks for pages for a while.
async fn cost(world: &World, length: Duration, page: &impl AsyncFn(u64) -> Result<()>) -> Result<Cost> {
    let (begun, cpu) = (Instant::now(), world.cpu()?);
    let readers = (0..READERS).map(|reader| async move {
        let (mut number, mut took) = (reader * STRIDE / READERS, Vec::new());
        while begun.elapsed() < length {
            let asked = Instant::now();
            page(number).await?;
            took.push(asked.elapsed().as_secs_f64() * 1e3);
            number += STRIDE;
        }
        anyhow::Ok(took)
    });
    let mut took = futures::future::try_join_all(readers).await?.concat();
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    ensure!(!took.is_empty(), "no page was read");
    Ok(Cost {
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        cpu_us: (world.cpu()? - cpu).as_secs_f64() * 1e6 / took.len() as f64,
        per_second: took.len() as f64 / begun.elapsed().as_secs_f64(),
    })
}
