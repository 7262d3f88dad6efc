//! Names and document ids of a unit, byte for byte those of the .NET processor, so that both can share a lease set.
//!
//! `prefix` = processor name, host of the account endpoint, `_`, database RID, `_`, container RID. A lease's id is the
//! prefix, two dots and the lease token; what belongs to the whole unit has one dot and a word.

use std::fmt;

use crate::error::BuildError;

/// Longest processor name, so that ids stay below the service's 1,023 bytes even with hierarchical keys.
const PROCESSOR_NAME_BYTES_MAX: usize = 128;
/// Longest instance name.
const INSTANCE_NAME_BYTES_MAX: usize = 256;

/// What the prefix is made of, as the monitored container's account says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceIdentity {
    /// Host of the account endpoint, without the port.
    pub host: String,
    pub database_rid: String,
    pub container_rid: String,
}

/// The ids of one unit's documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitNames {
    prefix: String,
}

impl UnitNames {
    pub fn new(processor: &str, source: &SourceIdentity) -> UnitNames {
        let SourceIdentity {
            host,
            database_rid,
            container_rid,
        } = source;
        UnitNames {
            prefix: format!("{processor}{host}_{database_rid}_{container_rid}"),
        }
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether a prefix is that of the same processor over the same container, reached by another host name.
    pub fn is_sibling(&self, processor: &str, source: &SourceIdentity, prefix: &str) -> bool {
        let place = format!("_{}_{}", source.database_rid, source.container_rid);
        prefix != self.prefix && prefix.starts_with(processor) && prefix.ends_with(&place)
    }

    /// What the id of every document of the unit begins with.
    pub fn all(&self) -> String {
        format!("{}.", self.prefix)
    }

    pub fn lease(&self, token: &str) -> String {
        format!("{}..{token}", self.prefix)
    }

    pub fn info(&self) -> String {
        format!("{}.info", self.prefix)
    }

    pub fn lock(&self) -> String {
        format!("{}.lock", self.prefix)
    }

    /// Holds whether the unit is paused.
    pub fn control(&self) -> String {
        format!("{}.control", self.prefix)
    }

    /// A host's request for a lease that another one holds.
    pub fn want(&self, token: &str) -> String {
        format!("{}.want.{token}", self.prefix)
    }

    /// The token of a lease whose id this is.
    pub fn lease_token<'a>(&self, id: &'a str) -> Option<&'a str> {
        id.strip_prefix(&self.prefix)?.strip_prefix("..")
    }

    /// The token of the lease that a request with this id is about.
    pub fn want_token<'a>(&self, id: &'a str) -> Option<&'a str> {
        id.strip_prefix(&self.prefix)?.strip_prefix(".want.")
    }
}

/// A processor name may stand in a document id and between quotes.
pub fn check_processor_name(name: &str) -> Result<(), BuildError> {
    let forbidden = |char: char| matches!(char, '"' | '\'' | '/' | '\\' | '?' | '#') || char.is_control();
    if name.is_empty() || name.len() > PROCESSOR_NAME_BYTES_MAX || name.contains(forbidden) {
        return Err(BuildError::ProcessorName(name.to_owned()));
    }
    Ok(())
}

/// The name of one host of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstanceName(String);

impl InstanceName {
    pub fn new(name: impl Into<String>) -> Result<InstanceName, BuildError> {
        let name = name.into();
        if name.trim().is_empty() || name.len() > INSTANCE_NAME_BYTES_MAX || name.contains(char::is_control) {
            return Err(BuildError::InstanceName(name));
        }
        Ok(InstanceName(name))
    }

    /// `POD_NAME` or the machine's name, with the process id: unique, though not kept over a restart. A stable name lets a
    /// restarted host go on at once instead of waiting for its leases to expire.
    pub fn auto() -> InstanceName {
        let read = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let machine = || {
            let name = std::fs::read_to_string("/etc/hostname").ok()?;
            Some(name.trim().to_owned()).filter(|name| !name.is_empty())
        };
        let place = read("POD_NAME").or_else(|| read("HOSTNAME")).or_else(machine);
        InstanceName(format!(
            "{}-{}",
            place.unwrap_or_else(|| "host".to_owned()),
            std::process::id()
        ))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> UnitNames {
        UnitNames::new(
            "order-projection",
            &SourceIdentity {
                host: "ordersacct.documents.azure.com".into(),
                database_rid: "hK0QAA==".into(),
                container_rid: "hK0QAJf7nW4=".into(),
            },
        )
    }

    #[test]
    fn ids_are_those_of_the_dotnet_processor() {
        let names = names();
        let prefix = "order-projectionordersacct.documents.azure.com_hK0QAA==_hK0QAJf7nW4=";
        assert_eq!(names.lease("-05C1DFFFFFFFFC"), format!("{prefix}..-05C1DFFFFFFFFC"));
        assert_eq!(names.info(), format!("{prefix}.info"));
        assert_eq!(names.lock(), format!("{prefix}.lock"));
        assert_eq!(names.lease_token(&names.lease("0")), Some("0"));
        assert_eq!(names.lease_token(&names.info()), None);
        assert_eq!(names.lease_token(&names.want("-FF")), None);
        assert_eq!(names.want_token(&names.want("-FF")), Some("-FF"));
    }

    #[test]
    fn the_same_unit_under_another_host_name_is_a_sibling() {
        let source = |host: &str| SourceIdentity {
            host: host.into(),
            database_rid: "d==".into(),
            container_rid: "c==".into(),
        };
        let here = source("account.example");
        let names = UnitNames::new("unit", &here);
        let there = UnitNames::new("unit", &source("10.0.0.7"));
        assert!(names.is_sibling("unit", &here, there.prefix()));
        assert!(!names.is_sibling("unit", &here, names.prefix()));
        let other = UnitNames::new("other", &source("10.0.0.7"));
        assert!(!names.is_sibling("unit", &here, other.prefix()));
    }

    #[test]
    fn names_that_cannot_stand_in_an_id_are_refused() {
        for name in ["", "a\"b", "a/b", "a\\b", "a?b", "a#b", "a'b", &"n".repeat(129)] {
            assert!(check_processor_name(name).is_err(), "{name}");
        }
        assert!(check_processor_name("orders projection (v2)").is_ok());
        assert!(InstanceName::new(" ").is_err());
        assert!(InstanceName::new("pod-7").is_ok());
    }
}
