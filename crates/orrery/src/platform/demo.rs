//! Made-up content and users: something to look at in a new platform, and people who keep it busy.
//!
//! What is loaded has fixed names, so loading it twice changes nothing.

use std::time::Duration;

use anyhow::Result;
use orrery_publishing::ContentPublishDatabase;
use orrery_publishing::entity::Draft;
use tokio_util::sync::CancellationToken;

use crate::progress;

const AUTHORS: [&str; 9] = ["ada", "bram", "chen", "dewi", "elif", "femi", "greta", "hugo", "ines"];
const READERS: [&str; 12] = [
    "noor", "omar", "pia", "quinn", "rosa", "sam", "tara", "uma", "vik", "wren", "yuki", "zoe",
];
const CATEGORIES: [&str; 4] = ["science", "travel", "food", "sports"];
const TAGS: [&str; 6] = ["longread", "opinion", "howto", "photos", "beginners", "archive"];
const SUBJECTS: [&str; 8] = [
    "Tides",
    "Night trains",
    "Sourdough",
    "Glaciers",
    "Street maps",
    "Lighthouses",
    "Cave paintings",
    "Small telescopes",
];
const ANGLES: [&str; 5] = [
    "a beginner's notes",
    "what nobody told me",
    "in ten steps",
    "and the people who love them",
    "seen from far away",
];
const OPINIONS: [&str; 4] = [
    "Read it twice.",
    "Clear and short.",
    "I learned something.",
    "Not for me.",
];
const ARTICLES_PER_AUTHOR: usize = 5;

/// Fills the platform, each region with its share.
pub async fn load(databases: &[ContentPublishDatabase]) -> Result<()> {
    let n_steps = READERS.len() * 3 + AUTHORS.len() * ARTICLES_PER_AUTHOR * 3;
    let bar = progress::of_items(Some(n_steps as u64));
    for (number, reader) in READERS.iter().enumerate() {
        let database = home(databases, number);
        let filters = [
            format!("author:{}", AUTHORS[number % AUTHORS.len()]),
            format!("category:{}", CATEGORIES[number % CATEGORIES.len()]),
            format!("tag:{}", TAGS[number % TAGS.len()]),
        ];
        for filter in filters {
            database.create_subscription(reader, &filter).await?;
            bar.inc(1);
        }
    }
    for number in 0..AUTHORS.len() * ARTICLES_PER_AUTHOR {
        let author = AUTHORS[number % AUTHORS.len()];
        let name = format!("demo-{number}");
        let published = home(databases, number)
            .publish_article(author, draft(number), Some(&name))
            .await?;
        bar.inc(1);
        for at in 0..2 {
            let reader = number + at * 5 + 1;
            let (text, rating) = (OPINIONS[(number + at) % OPINIONS.len()], 1 + (number * 3 + at) % 5);
            let article = &published.article.id;
            let reviewer = READERS[reader % READERS.len()];
            home(databases, reader)
                .write_review(article, reviewer, text, rating as u8)
                .await?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// People who publish, subscribe and review, `rate` times a second, until told to stop. What fails is tried by the next one.
pub async fn traffic(databases: Vec<ContentPublishDatabase>, rate: f64, stopping: CancellationToken) {
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_article = None;
    for number in 0.. {
        // Both only wait, so dropping either loses nothing.
        tokio::select! {
            () = stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let done = act(&databases, number, &mut last_article).await;
        if let Err(error) = done {
            tracing::debug!(%error, "a made-up user was refused");
        }
    }
}

async fn act(databases: &[ContentPublishDatabase], number: usize, last_article: &mut Option<String>) -> Result<()> {
    let database = home(databases, number / 3);
    match (number % 5, &last_article) {
        (1..4, Some(article)) => {
            let (reader, text) = (READERS[number % READERS.len()], OPINIONS[number % OPINIONS.len()]);
            database
                .write_review(article, reader, text, (1 + number % 5) as u8)
                .await?;
        }
        (4, _) => {
            let filter = format!("category:{}", CATEGORIES[number % CATEGORIES.len()]);
            database
                .create_subscription(READERS[number % READERS.len()], &filter)
                .await?;
        }
        _ => {
            let published = database
                .publish_article(AUTHORS[number % AUTHORS.len()], draft(number), None)
                .await?;
            *last_article = Some(published.article.id);
        }
    }
    Ok(())
}

fn home(databases: &[ContentPublishDatabase], number: usize) -> &ContentPublishDatabase {
    &databases[number % databases.len()]
}

fn draft(number: usize) -> Draft {
    let (subject, angle) = (SUBJECTS[number % SUBJECTS.len()], ANGLES[number % ANGLES.len()]);
    let sentence = format!("{subject} deserve more attention than they get. ");
    Draft {
        category: CATEGORIES[number % CATEGORIES.len()].to_owned(),
        tags: vec![TAGS[number % TAGS.len()].to_owned()],
        title: format!("{subject}, {angle}"),
        body: sentence.repeat(3 + number % 5).trim_end().to_owned(),
    }
}
