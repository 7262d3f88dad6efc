//! One account per region: which accounts there are, and in which order each region would take over. Pure.
//!
//! In each region's account that region takes writes and all others read, nearest first, so that every region writes
//! locally and reads everything locally.

pub mod places;

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use places::PLACES;

/// Of the first account; each next one is this far away.
const FIRST_PORT: usize = 8100;
const PORT_STEP: usize = 10;

/// Accounts for a set of regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub accounts: Vec<AccountPlan>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountPlan {
    pub id: String,
    /// The first takes writes; the others by distance.
    pub regions: Vec<String>,
    pub port: usize,
    /// In base64. `None`: the development key.
    pub key: Option<String>,
}

/// Region names from a number or from names with commas in between.
pub fn regions_wanted(text: &str) -> Result<Vec<String>> {
    let Ok(wanted) = text.trim().parse::<usize>() else {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        // Known regions are spelled as clients are used to.
        let spelled = |name: &str| places::find(name).map_or(name, |place| place.name).to_owned();
        return Ok(names.map(spelled).collect());
    };
    ensure!(
        wanted <= PLACES.len(),
        "there are {} well-known regions: name yours",
        PLACES.len()
    );
    Ok(PLACES[..wanted].iter().map(|place| place.name.to_owned()).collect())
}

impl Plan {
    /// `prefix` begins the names of all accounts.
    pub fn new(regions: &[String], prefix: &str) -> Result<Plan> {
        ensure!(!regions.is_empty(), "name at least one region");
        for (at, region) in regions.iter().enumerate() {
            let plain = places::plain(region);
            ensure!(!plain.is_empty(), "'{region}' is not a region's name");
            let twice = regions[..at].iter().any(|other| places::plain(other) == plain);
            ensure!(!twice, "the region {region} is named twice");
        }
        let step = PORT_STEP * (regions.len() + 1).div_ceil(PORT_STEP);
        let account = |(at, region): (usize, &String)| {
            Ok(AccountPlan {
                id: format!("{prefix}-{}", tag(region, regions)),
                regions: by_distance(region, regions),
                port: Some(FIRST_PORT + at * step)
                    .filter(|port| port + regions.len() <= usize::from(u16::MAX))
                    .context("there are not so many ports")?,
                key: None,
            })
        };
        let accounts = regions.iter().enumerate().map(account).collect::<Result<_>>()?;
        Ok(Plan { accounts })
    }

    /// The settings file of a server with these accounts; with links as slow as distance makes them, if so wished.
    pub fn to_server_settings(&self, with_links: bool) -> String {
        let mut text = String::from("# One account per region: there it takes writes, everywhere else it is read.\n");
        for account in &self.accounts {
            let _ = write!(
                text,
                "\n[[accounts]]\nid = {}\nregions = {}\nport = {}\n",
                quoted(&account.id),
                list(&account.regions),
                account.port
            );
            if let Some(key) = &account.key {
                let _ = writeln!(text, "key = {}", quoted(key));
            }
        }
        if with_links {
            self.links().iter().for_each(|link| text.push_str(link));
        }
        text
    }

    /// One entry per pair of regions whose places are known.
    fn links(&self) -> Vec<String> {
        let regions: Vec<&String> = self.accounts.iter().map(|account| &account.regions[0]).collect();
        let mut links = Vec::new();
        for (at, from) in regions.iter().enumerate() {
            for to in &regions[at + 1..] {
                let (Some(here), Some(there)) = (places::find(from), places::find(to)) else {
                    continue;
                };
                links.push(format!(
                    "\n[[links]]\nfrom = {}\nto = {}\nlatency-ms = {}\n",
                    quoted(from),
                    quoted(to),
                    places::latency_ms(here, there)
                ));
            }
        }
        links
    }

    /// What a client in each region needs: the account it writes to, all it reads from, and where it prefers to read.
    pub fn to_client_settings(&self) -> String {
        let mut text = String::from("# Clients write to their own region's account and read every account close by.\n");
        for account in &self.accounts {
            let _ = write!(
                text,
                "\n[[accounts]]\nid = {}\nendpoint = \"http://localhost:{}/\"\n",
                quoted(&account.id),
                account.port
            );
        }
        for account in &self.accounts {
            let _ = write!(
                text,
                "\n[[clients]]\nregion = {}\nwrite-account = {}\npreferred-locations = {}\n",
                quoted(&account.regions[0]),
                quoted(&account.id),
                list(&account.regions)
            );
        }
        text
    }
}

/// The geography of a region, if no other region is in it; otherwise the region itself.
fn tag(region: &str, all: &[String]) -> String {
    let geography = |name: &str| places::find(name).map(|place| place.geography);
    let own = geography(region);
    let alone = all.iter().filter(|other| geography(other) == own).count() == 1;
    match own {
        Some(own) if alone => own.to_owned(),
        _ => places::plain(region).chars().filter(char::is_ascii).collect(),
    }
}

/// A region and all others, nearest first; those nobody knows the place of come last, in their order.
fn by_distance(region: &str, all: &[String]) -> Vec<String> {
    let away = |other: &String| match (places::find(region), places::find(other)) {
        (Some(from), Some(to)) => places::distance_km(from, to),
        _ => f64::INFINITY,
    };
    let mut others: Vec<String> = all.iter().filter(|other| *other != region).cloned().collect();
    others.sort_by(|a, b| away(a).total_cmp(&away(b)));
    std::iter::once(region.to_owned()).chain(others).collect()
}

/// A string as TOML has it, which is as JSON has it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(regions: &str) -> Vec<(String, Vec<String>)> {
        let plan = Plan::new(&regions_wanted(regions).unwrap(), "contentpubdatabase").unwrap();
        let row = |account: AccountPlan| (account.id, account.regions);
        plan.accounts.into_iter().map(row).collect()
    }

    fn row(id: &str, regions: &[&str]) -> (String, Vec<String>) {
        (id.to_owned(), regions.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn two_and_three_regions_give_the_tables_the_pattern_was_published_with() {
        let (west, north, asia) = ("West US", "North Europe", "Southeast Asia");
        assert_eq!(
            table("2"),
            [
                row("contentpubdatabase-usa", &[west, north]),
                row("contentpubdatabase-europe", &[north, west]),
            ]
        );
        let three = [
            row("contentpubdatabase-usa", &[west, north, asia]),
            row("contentpubdatabase-europe", &[north, west, asia]),
            row("contentpubdatabase-asia", &[asia, north, west]),
        ];
        assert_eq!(table("3"), three);
        assert_eq!(table("westus, north-europe, Southeast Asia"), three);
    }

    #[test]
    fn regions_of_one_geography_are_told_apart_and_unknown_ones_come_last() {
        let table = table("West US,Mars,East US");
        assert_eq!(
            table[0],
            row("contentpubdatabase-westus", &["West US", "East US", "Mars"])
        );
        assert_eq!(table[1].0, "contentpubdatabase-mars");
        assert_eq!(table[2].0, "contentpubdatabase-eastus");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(regions_wanted("1000").is_err());
        for regions in ["", "West US,west us", "West US,--"] {
            assert!(Plan::new(&regions_wanted(regions).unwrap(), "x").is_err(), "{regions}");
        }
    }

    #[test]
    fn accounts_of_many_regions_do_not_share_ports() {
        let plan = Plan::new(&regions_wanted("12").unwrap(), "x").unwrap();
        assert!(plan.accounts.windows(2).all(|pair| pair[1].port - pair[0].port > 12));
    }

    #[test]
    fn clients_prefer_their_own_region_and_write_there() {
        let plan = Plan::new(&regions_wanted("3").unwrap(), "x").unwrap();
        let settings: toml::Table = plan.to_client_settings().parse().unwrap();
        let asia = &settings["clients"][2];
        assert_eq!(asia["write-account"].as_str(), Some("x-asia"));
        assert_eq!(asia["preferred-locations"][0].as_str(), Some("Southeast Asia"));
        assert_eq!(settings["accounts"].as_array().unwrap().len(), 3);
    }
}
