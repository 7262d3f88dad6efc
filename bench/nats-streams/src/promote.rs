//! What a failover costs: mirrors become streams of their own, and others become mirrors of them.

use std::time::Instant;

use anyhow::Result;
use async_nats::jetstream::stream::{Config, Source};
use futures::StreamExt as _;

use crate::servers::Servers;

const AT_ONCE: usize = 16;

pub async fn run() -> Result<()> {
    println!("\nmirrors promoted, then streams mirrored anew; R3, in one domain");
    println!(
        "{:<22} {:>8} {:>14} {:>14} {:>16} {:>16}",
        "", "streams", "promote, s", "each, ms", "mirror anew, s", "each, ms"
    );
    for count in [4, 16, 64] {
        measure(count, 1).await?;
        measure(count, AT_ONCE).await?;
    }
    Ok(())
}

async fn measure(count: usize, at_once: usize) -> Result<()> {
    let servers = Servers::start(3).await?;
    for idx in 0..count {
        let config = servers.config(&format!("S{idx}"), &format!("s.{idx}.>"));
        servers.jetstream.create_stream(config).await?;
        servers
            .jetstream
            .create_stream(mirror(&servers, &format!("M{idx}"), &format!("S{idx}")))
            .await?;
    }
    let begun = Instant::now();
    for_each(count, at_once, |idx| {
        // The old subjects stay with the old stream, as they do in another region.
        let config = servers.config(&format!("M{idx}"), &format!("m.{idx}.>"));
        let jetstream = servers.jetstream.clone();
        async move { anyhow::Ok(jetstream.update_stream(config).await.map(|_| ())?) }
    })
    .await?;
    let promoted = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for_each(count, at_once, |idx| {
        let config = mirror(&servers, &format!("R{idx}"), &format!("M{idx}"));
        let jetstream = servers.jetstream.clone();
        async move { anyhow::Ok(jetstream.create_stream(config).await.map(|_| ())?) }
    })
    .await?;
    let mirrored = begun.elapsed().as_secs_f64();
    let each = |seconds: f64| seconds * 1000.0 / count as f64;
    println!(
        "{:<22} {count:>8} {promoted:>14.2} {:>14.1} {mirrored:>16.2} {:>16.1}",
        if at_once == 1 {
            "one after the other".into()
        } else {
            format!("{at_once} at once")
        },
        each(promoted),
        each(mirrored),
    );
    Ok(())
}

fn mirror(servers: &Servers, name: &str, of: &str) -> Config {
    Config {
        subjects: Vec::new(),
        mirror: Some(Source {
            name: of.to_owned(),
            ..Source::default()
        }),
        ..servers.config(name, "")
    }
}

async fn for_each<F: Future<Output = Result<()>>>(
    count: usize,
    at_once: usize,
    work: impl Fn(usize) -> F,
) -> Result<()> {
    let mut all = futures::stream::iter((0..count).map(work)).buffer_unordered(at_once);
    while let Some(done) = all.next().await {
        done?;
    }
    Ok(())
}
