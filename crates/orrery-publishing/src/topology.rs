//! Which accounts there are, where each takes its writes, and what that means for a client in one region.
//!
//! One account per region: it takes writes there, and every other region reads it. Or a single account for all regions: every
//! region writes to it, and there is nothing to unite. The table is checked when it is read, not at the first request: a host
//! that is not its account's, a region without an account, two accounts for one region are refused in words. Invariant: in a
//! checked table every region has exactly one account that takes its writes.

use std::collections::BTreeSet;
use std::fmt;

use azure_core::http::Url;
use serde::{Deserialize, Serialize};

use crate::ids;

/// Hosts of the service are named after their account.
const SERVICE_HOST: &str = ".documents.azure.com";

/// An account key, which prints as nothing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountKey(pub String);

impl fmt::Debug for AccountKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("AccountKey(..)")
    }
}

/// One account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AccountEntry {
    /// Name of the account, as in `contentpubdatabase-usa`.
    pub name: String,
    /// The short word that article ids begin with. Never changes.
    pub tag: String,
    pub endpoint: String,
    pub key: AccountKey,
    pub write_region: String,
    /// In the order of failover: nearest to the write region first.
    #[serde(default)]
    pub read_regions: Vec<String>,
}

impl AccountEntry {
    pub fn regions(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.write_region)
            .chain(&self.read_regions)
            .map(String::as_str)
    }
}

/// All accounts, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountTable {
    accounts: Vec<AccountEntry>,
}

/// What is wrong with a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("there is no account")]
    Empty,
    #[error("`{0}` is no tag: it has 1 to 32 lower-case letters, digits and dashes")]
    Tag(String),
    #[error("two accounts have the {what} `{value}`")]
    Twice { what: &'static str, value: String },
    #[error("account `{name}` has the endpoint `{endpoint}`, which is no URL of an account")]
    Endpoint { name: String, endpoint: String },
    #[error("account `{name}` has the endpoint `{endpoint}`, whose host begins with another account's name")]
    Host { name: String, endpoint: String },
    #[error("account `{name}` names the region `{region}` twice")]
    RegionTwice { name: String, region: String },
    #[error("accounts `{0}` and `{1}` both take writes in `{2}`")]
    WriteRegionTwice(String, String, String),
    #[error("no account takes writes in `{0}`; each region needs its own")]
    NoAccount(String),
    #[error("account `{name}` is not in `{region}`, where it must be read")]
    NotEverywhere { name: String, region: String },
}

/// Two spellings of one region: `North Europe`, `northeurope` and `North-Europe` are the same.
pub fn normal_region(name: &str) -> String {
    let letters = name.chars().filter(|char| !matches!(char, ' ' | '-' | '_'));
    letters.flat_map(char::to_lowercase).collect()
}

impl AccountTable {
    pub fn new(accounts: Vec<AccountEntry>) -> Result<AccountTable, TableError> {
        if accounts.is_empty() {
            return Err(TableError::Empty);
        }
        for (what, of) in [
            ("name", (|entry| &entry.name) as fn(&AccountEntry) -> &String),
            ("tag", |entry| &entry.tag),
            ("endpoint", |entry| &entry.endpoint),
        ] {
            let mut seen = BTreeSet::new();
            if let Some(entry) = accounts.iter().find(|entry| !seen.insert(of(entry))) {
                return Err(TableError::Twice {
                    what,
                    value: of(entry).clone(),
                });
            }
        }
        accounts.iter().try_for_each(check_entry)?;
        check_regions(&accounts)?;
        Ok(AccountTable { accounts })
    }

    pub fn accounts(&self) -> &[AccountEntry] {
        &self.accounts
    }

    pub fn by_tag(&self, tag: &str) -> Option<&AccountEntry> {
        self.accounts.iter().find(|entry| entry.tag == tag)
    }

    /// Every region, as its account spells it, with the account that takes its writes.
    pub fn homes(&self) -> impl Iterator<Item = (&str, &AccountEntry)> {
        let is_shared = self.accounts.len() == 1;
        self.accounts.iter().flat_map(move |entry| {
            let n_homes = if is_shared { usize::MAX } else { 1 };
            entry.regions().take(n_homes).map(move |region| (region, entry))
        })
    }

    /// The region as it is spelled in the table, and its account.
    pub fn home(&self, region: &str) -> Result<(&str, &AccountEntry), TableError> {
        let wanted = normal_region(region);
        let found = self.homes().find(|(region, _)| normal_region(region) == wanted);
        found.ok_or_else(|| TableError::NoAccount(region.to_owned()))
    }

    /// The account of a region: the one whose writes are local there.
    pub fn local(&self, region: &str) -> Result<&AccountEntry, TableError> {
        Ok(self.home(region)?.1)
    }

    /// In which order a client in a region asks an account's regions, whichever account it is: its own region first, then
    /// the others from near to far, which is the order of its own account.
    pub fn preferred_regions(&self, region: &str) -> Result<Vec<String>, TableError> {
        let (own, account) = self.home(region)?;
        let others = account.regions().filter(|other| *other != own);
        Ok(std::iter::once(own).chain(others).map(str::to_owned).collect())
    }
}

fn check_entry(entry: &AccountEntry) -> Result<(), TableError> {
    if !ids::is_tag(&entry.tag) {
        return Err(TableError::Tag(entry.tag.clone()));
    }
    let (name, endpoint) = (entry.name.clone(), entry.endpoint.clone());
    let url = Url::parse(&entry.endpoint)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(host) = url.as_ref().and_then(Url::host_str) else {
        return Err(TableError::Endpoint { name, endpoint });
    };
    if host
        .strip_suffix(SERVICE_HOST)
        .is_some_and(|account| account != entry.name)
    {
        return Err(TableError::Host { name, endpoint });
    }
    let mut seen = BTreeSet::new();
    let mut regions = entry.regions();
    match regions.find(|region| !seen.insert(normal_region(region))) {
        Some(region) => Err(TableError::RegionTwice {
            name,
            region: region.to_owned(),
        }),
        None => Ok(()),
    }
}

fn check_regions(accounts: &[AccountEntry]) -> Result<(), TableError> {
    if accounts.len() == 1 {
        return Ok(());
    }
    for (index, entry) in accounts.iter().enumerate() {
        let region = normal_region(&entry.write_region);
        let mut earlier = accounts[..index].iter();
        if let Some(other) = earlier.find(|other| normal_region(&other.write_region) == region) {
            let names = (other.name.clone(), entry.name.clone());
            return Err(TableError::WriteRegionTwice(
                names.0,
                names.1,
                entry.write_region.clone(),
            ));
        }
        for region in entry.read_regions.iter() {
            if !accounts
                .iter()
                .any(|other| normal_region(&other.write_region) == normal_region(region))
            {
                return Err(TableError::NoAccount(region.clone()));
            }
        }
        for other in accounts {
            let region = &other.write_region;
            if !entry.regions().any(|own| normal_region(own) == normal_region(region)) {
                let name = entry.name.clone();
                return Err(TableError::NotEverywhere {
                    name,
                    region: region.clone(),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: &str, regions: &[&str]) -> AccountEntry {
        let name = format!("contentpubdatabase-{tag}");
        AccountEntry {
            endpoint: format!("https://{name}.documents.azure.com/"),
            name,
            tag: tag.to_owned(),
            key: AccountKey("c2VjcmV0".into()),
            write_region: regions[0].to_owned(),
            read_regions: regions[1..].iter().map(|region| (*region).to_owned()).collect(),
        }
    }

    fn three() -> Vec<AccountEntry> {
        vec![
            entry("usa", &["West US", "North Europe", "Southeast Asia"]),
            entry("europe", &["North Europe", "West US", "Southeast Asia"]),
            entry("asia", &["Southeast Asia", "North Europe", "West US"]),
        ]
    }

    #[test]
    fn a_region_writes_to_its_own_account_and_reads_every_account_at_home_first() {
        let table = AccountTable::new(three()).unwrap();
        for region in ["North Europe", "NorthEurope", "north-europe"] {
            assert_eq!(table.local(region).unwrap().tag, "europe");
            assert_eq!(
                table.preferred_regions(region).unwrap(),
                ["North Europe", "West US", "Southeast Asia"]
            );
        }
        assert_eq!(table.preferred_regions("Southeast Asia").unwrap()[0], "Southeast Asia");
        assert_eq!(table.local("Mars"), Err(TableError::NoAccount("Mars".into())));
    }

    #[test]
    fn a_single_account_takes_the_writes_of_all_its_regions() {
        let table = AccountTable::new(vec![entry("world", &["West US", "North Europe", "Southeast Asia"])]).unwrap();
        let homes: Vec<&str> = table.homes().map(|(region, _)| region).collect();
        assert_eq!(homes, ["West US", "North Europe", "Southeast Asia"]);
        assert_eq!(table.home("southeastasia").unwrap().0, "Southeast Asia");
        assert_eq!(
            table.preferred_regions("North Europe").unwrap(),
            ["North Europe", "West US", "Southeast Asia"]
        );
        assert_eq!(table.local("Mars"), Err(TableError::NoAccount("Mars".into())));
    }

    fn refused(change: impl FnOnce(&mut Vec<AccountEntry>)) -> TableError {
        let mut accounts = three();
        change(&mut accounts);
        AccountTable::new(accounts).unwrap_err()
    }

    #[test]
    fn a_host_that_is_not_its_accounts_is_refused_before_the_first_request() {
        let error =
            refused(|accounts| accounts[1].endpoint = "https://contentpubdatabase-europ.documents.azure.com".into());
        assert_eq!(
            error.to_string(),
            "account `contentpubdatabase-europe` has the endpoint \
             `https://contentpubdatabase-europ.documents.azure.com`, whose host begins with another account's name"
        );
        let error = refused(|accounts| accounts[0].endpoint = "contentpubdatabase-usa".into());
        assert!(matches!(error, TableError::Endpoint { .. }));
        let mut local = three();
        local[0].endpoint = "http://localhost:8100/".into();
        assert!(AccountTable::new(local).is_ok());
    }

    #[test]
    fn every_region_needs_exactly_one_account_and_every_account_every_region() {
        let error = refused(|accounts| drop(accounts.pop()));
        assert_eq!(error, TableError::NoAccount("Southeast Asia".into()));
        let error = refused(|accounts| accounts[1].write_region = "West US".into());
        assert!(matches!(error, TableError::RegionTwice { .. }));
        let error = refused(|accounts| drop(accounts[2].read_regions.pop()));
        assert!(matches!(error, TableError::NotEverywhere { region, .. } if region == "West US"));
        let error = refused(|accounts| accounts[2].tag = "usa".into());
        assert_eq!(
            error,
            TableError::Twice {
                what: "tag",
                value: "usa".into()
            }
        );
        assert_eq!(AccountTable::new(Vec::new()), Err(TableError::Empty));
    }

    #[test]
    fn a_key_is_never_printed() {
        assert!(!format!("{:?}", three()).contains("c2VjcmV0"));
    }
}
