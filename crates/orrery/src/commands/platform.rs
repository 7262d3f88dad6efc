//! `orrery platform`: the publishing service of one region, on accounts that are elsewhere, such as Azure's.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::commands::serve::allow_many_files;
use crate::logging;
use crate::platform::region::{RegionSettings, run as serve};

#[derive(Args, Debug)]
pub struct PlatformFlags {
    /// The accounts of all regions, as TOML; `docs/guides/publishing-walkthrough.md` has an example
    #[arg(long, value_name = "FILE")]
    accounts: PathBuf,
    /// The region that this service is in
    #[arg(long, value_name = "NAME")]
    region: String,
    /// Address to listen on [default: loopback, IPv4 and IPv6]
    #[arg(long, value_name = "ADDR")]
    listen: Option<IpAddr>,
    /// Port to listen on; 0 takes any free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Listen beyond loopback although this speaks plain HTTP, behind something that ends TLS
    #[arg(long)]
    allow_plain_http: bool,
    /// Give tokens of any user to whoever asks; on loopback only
    #[arg(long)]
    development: bool,
    /// What tokens of users are signed with, the same in all regions
    #[arg(long, value_name = "TEXT", env = "ORRERY_TOKEN_SECRET", hide_env_values = true)]
    token_secret: Option<String>,
    /// Name of this process among those of its region; one that stays the same goes on at once after a restart
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Take the account's database and containers as they are, instead of making what is missing
    #[arg(long)]
    no_prepare: bool,
}

impl PlatformFlags {
    fn settings(&self) -> Result<RegionSettings> {
        let is_local = self.listen.is_none_or(|address| address.is_loopback());
        ensure!(
            is_local || self.allow_plain_http,
            "plain HTTP is served to this machine only, unless --allow-plain-http is given"
        );
        ensure!(
            is_local || !self.development,
            "tokens for development are given out on loopback only"
        );
        Ok(RegionSettings {
            region: self.region.clone(),
            listen: self.listen,
            port: self.port,
            development: self.development,
            token_secret: self.token_secret.clone(),
            instance: self.instance.clone(),
            prepare: !self.no_prepare,
        })
    }
}

pub fn run(flags: &PlatformFlags) -> Result<()> {
    logging::start();
    let settings = flags.settings()?;
    allow_many_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(&flags.accounts, &settings))
}
