//! Notifications per second that the role of one region writes, server and role on the same cores: for one article that very
//! many subscribe to, and for many articles with fewer subscribers each.

use std::time::Instant;

use anyhow::Result;
use orrery_publishing::ContentPublishDatabase;
use orrery_publishing::account::ReadAt;
use orrery_publishing::entity::{Draft, Notification};
use orrery_publishing::fanout::{Fanout, FanoutSettings, RunningFanout};
use orrery_publishing::ids;
use orrery_publishing::processor::InstanceName;

use super::world::{World, user_name};
use crate::report::Row;
use crate::rows::Settings;

const GOAL_PER_SECOND: f64 = 5_000.0;
const FEW: u64 = 100;
const N_ARTICLES: u64 = 400;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let world = World::start(scratch.path(), 1).await?;
    // Twenty for a million: filters of that size are what fan-out is made for.
    let n_many = (settings.n_notifications / 20).max(FEW);
    world.subscribe("category:large", n_many).await?;
    world.subscribe("category:small", FEW).await?;
    world.subscribe("category:warm", FEW).await?;
    let database = &world.databases[0];
    let role = Fanout::new(database, FanoutSettings::new(InstanceName::new("bench")?)).start();
    published(&world, &role, "warm", 1, FEW).await?;
    let large = published(&world, &role, "large", 1, n_many).await?;
    let small = published(&world, &role, "small", N_ARTICLES, FEW).await?;
    role.stop().await;
    Ok(vec![
        row(&format!("fan-out of one article to {n_many} subscribers"), large),
        row(
            &format!("fan-out of {N_ARTICLES} articles to {FEW} subscribers each"),
            small,
        ),
    ])
}

fn row(what: &str, per_second: f64) -> Row {
    Row {
        measured: format!("{per_second:.0} notifications/s"),
        goal: format!("≥ {GOAL_PER_SECOND}/s"),
        met: Some(per_second >= GOAL_PER_SECOND),
        ..Row::below(what, per_second, "", GOAL_PER_SECOND)
    }
}

/// Notifications per second from publishing until every subscriber has all of them.
async fn published(
    world: &World,
    role: &RunningFanout,
    category: &str,
    n_articles: u64,
    n_subscribers: u64,
) -> Result<f64> {
    let database = &world.databases[0];
    let begun = Instant::now();
    let publish = (0..n_articles).map(|number| {
        let draft = Draft {
            category: category.to_owned(),
            title: format!("{category} {number}"),
            ..Draft::default()
        };
        database.publish_article("bench", draft, None)
    });
    let published = futures::future::try_join_all(publish).await?;
    let last = user_name(n_subscribers - 1);
    for article in &published {
        world
            .until("the last subscriber is notified", async || {
                has(database, &last, &article.article.id).await
            })
            .await?;
    }
    let took = begun.elapsed().as_secs_f64();
    world
        .until("nothing waits", async || role.states().await[0].waiting == Some(0))
        .await?;
    // Users are served in the order of their names, so the last one's says that all of them were.
    Ok((n_articles * n_subscribers) as f64 / took)
}

async fn has(database: &ContentPublishDatabase, user: &str, article: &str) -> bool {
    let id = ids::notification_id(user, article);
    database
        .local()
        .read::<Notification>(user, &id, ReadAt::Near)
        .await
        .is_ok()
}
