//! The account document, which every client reads first and again every few minutes.
//!
//! Both location lists are present and never empty, and thin-client locations are never named: they would switch clients
//! to a protocol this server does not speak.

use bytes::Bytes;
use orrery_node::account::Account;
use orrery_node::api::Consistency;
use serde_json::{Value, json};

use crate::names::region_label;

/// A region and the address under which the client that asked reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Display name, such as `West US 2`.
    pub region: String,
    /// Absolute URL.
    pub endpoint: String,
}

/// Where an account lives. The write region comes first and is also readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locations {
    pub write: Location,
    /// In the order in which they would take over.
    pub read_only: Vec<Location>,
}

/// The body of the answer to `GET /`. Its id is the first label of the name that was called: that of the region whose name was,
/// and of the account otherwise.
pub fn document(account: &Account, called_region: Option<&str>, locations: &Locations) -> Bytes {
    let readable: Vec<Value> = std::iter::once(&locations.write)
        .chain(&locations.read_only)
        .map(location)
        .collect();
    let replicas = json!({"asyncReplication": false, "minReplicaSetSize": 3, "maxReplicasetSize": 4});
    let document = json!({
        "_self": "",
        "id": called_region.map_or_else(|| account.id.clone(), |region| region_label(&account.id, region)),
        "_rid": rid(account, locations),
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": [location(&locations.write)],
        "readableLocations": readable,
        "enableMultipleWriteLocations": false,
        "continuousBackupEnabled": false,
        "enableNRegionSynchronousCommit": false,
        "enablePerPartitionFailoverBehavior": false,
        "disableCrossRegionalHedging": false,
        "userReplicationPolicy": replicas,
        "userConsistencyPolicy": consistency_policy(account, locations),
        "systemReplicationPolicy": replicas,
        "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
        "queryEngineConfiguration": QUERY_ENGINE_CONFIGURATION,
    });
    document.to_string().into()
}

/// JSON inside a string. .NET refuses every query if it is empty; the last member turns off its shortcut around plans.
const QUERY_ENGINE_CONFIGURATION: &str = concat!(
    r#"{"allowNewKeywords":true,"maxJoinsPerSqlQuery":10,"maxQueryRequestTimeoutFraction":0.9,"#,
    r#""maxSqlQueryInputLength":524288,"maxUdfRefPerSqlQuery":10,"queryMaxInMemorySortDocumentCount":-1000,"#,
    r#""spatialMaxGeometryPointCount":256,"sqlAllowNonFiniteNumbers":false,"sqlDisableOptimizationFlags":0,"#,
    r#""enableSpatialIndexing":true,"maxInExpressionItemsCount":2147483647,"maxLogicalAndPerSqlQuery":2147483647,"#,
    r#""maxLogicalOrPerSqlQuery":2147483647,"maxSpatialQueryCells":2147483647,"sqlAllowAggregateFunctions":true,"#,
    r#""sqlAllowGroupByClause":true,"sqlAllowLike":true,"sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"#,
    r#""sqlAllowTop":true,"clientDisableOptimisticDirectExecution":true}"#,
);

fn location(location: &Location) -> Value {
    json!({"name": location.region, "databaseAccountEndpoint": location.endpoint})
}

fn rid(account: &Account, locations: &Locations) -> String {
    format!(
        "{}.sql.cosmos.azure.com",
        region_label(&account.id, &locations.write.region)
    )
}

/// Bounds are shown whatever the level: those that hold where they matter, and the service's usual ones elsewhere.
fn consistency_policy(account: &Account, locations: &Locations) -> Value {
    let is_bounded = account.consistency == Consistency::BoundedStaleness;
    let holds = is_bounded && (account.staleness.chosen.is_some() || !locations.read_only.is_empty());
    let bounds = account.staleness.bounds();
    let (prefix, seconds) = match holds {
        true => (bounds.transactions, bounds.age.as_secs()),
        false => (100, 5),
    };
    json!({
        "defaultConsistencyLevel": level_name(account.consistency),
        "maxStalenessPrefix": prefix,
        "maxIntervalInSeconds": seconds,
    })
}

fn level_name(level: Consistency) -> &'static str {
    match level {
        Consistency::Eventual => "Eventual",
        Consistency::ConsistentPrefix => "ConsistentPrefix",
        Consistency::Session => "Session",
        Consistency::BoundedStaleness => "BoundedStaleness",
        Consistency::Strong => "Strong",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orrery_node::geo::bounds::{Bounds, Staleness};

    use super::*;

    fn location(region: &str, endpoint: &str) -> Location {
        Location {
            region: region.to_owned(),
            endpoint: endpoint.to_owned(),
        }
    }

    fn shown(consistency: Consistency, read_only: Vec<Location>) -> Value {
        shown_with(consistency, Staleness::default(), read_only)
    }

    fn shown_with(consistency: Consistency, staleness: Staleness, read_only: Vec<Location>) -> Value {
        let account = Account {
            id: "orrery".to_owned(),
            consistency,
            staleness,
            regions: vec!["West US 2".to_owned()],
        };
        let locations = Locations {
            write: location("West US 2", "http://localhost:8081/"),
            read_only,
        };
        serde_json::from_slice(&document(&account, None, &locations)).unwrap()
    }

    #[test]
    fn one_region_is_both_writable_and_readable() {
        let document = shown(Consistency::Session, Vec::new());
        let expected = json!([{"name": "West US 2", "databaseAccountEndpoint": "http://localhost:8081/"}]);
        assert_eq!(document["writableLocations"], expected);
        assert_eq!(document["readableLocations"], expected);
        assert_eq!(document["userConsistencyPolicy"]["defaultConsistencyLevel"], "Session");
        assert_eq!(document["id"], "orrery");
        assert_eq!(document["_rid"], "orrery-westus2.sql.cosmos.azure.com");
        assert_eq!(document["_self"], "");
    }

    #[test]
    fn a_region_that_is_called_by_name_has_its_own_id() {
        let account = Account {
            id: "orrery".to_owned(),
            consistency: Consistency::Session,
            staleness: Staleness::default(),
            regions: vec!["West US".to_owned(), "North Europe".to_owned()],
        };
        let locations = Locations {
            write: location("West US", "http://localhost:8082/"),
            read_only: vec![location("North Europe", "http://localhost:8083/")],
        };
        let document: Value = serde_json::from_slice(&document(&account, Some("North Europe"), &locations)).unwrap();
        assert_eq!(document["id"], "orrery-northeurope");
    }

    #[test]
    fn more_regions_are_readable_in_their_order() {
        let read_only = vec![
            location("North Europe", "http://localhost:8082/"),
            location("Japan East", "http://localhost:8083/"),
        ];
        let document = shown(Consistency::BoundedStaleness, read_only);
        let names: Vec<_> = document["readableLocations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["name"])
            .collect();
        assert_eq!(names, ["West US 2", "North Europe", "Japan East"]);
        assert_eq!(document["writableLocations"].as_array().unwrap().len(), 1);
        assert_eq!(document["userConsistencyPolicy"]["maxStalenessPrefix"], 100_000);
    }

    #[test]
    fn the_bounds_an_account_has_chosen_are_shown_where_they_hold() {
        let staleness = Staleness {
            chosen: Some(Bounds {
                transactions: 250_000,
                age: Duration::from_secs(600),
            }),
            may_be_tight: false,
        };
        let policy = |level| {
            let policy = shown_with(level, staleness, Vec::new())["userConsistencyPolicy"].take();
            (
                policy["maxStalenessPrefix"].clone(),
                policy["maxIntervalInSeconds"].clone(),
            )
        };
        assert_eq!(policy(Consistency::BoundedStaleness), (json!(250_000), json!(600)));
        assert_eq!(policy(Consistency::Session), (json!(100), json!(5)));
    }

    #[test]
    fn clients_are_never_sent_to_the_thin_client_protocol() {
        let document = shown(Consistency::Strong, Vec::new()).to_string();
        assert!(!document.to_lowercase().contains("thinclient"));
    }

    #[test]
    fn the_query_engine_configuration_is_a_string_that_holds_a_filled_object() {
        let document = shown(Consistency::Session, Vec::new());
        let text = document["queryEngineConfiguration"].as_str().unwrap();
        let configuration: Value = serde_json::from_str(text).unwrap();
        assert_eq!(configuration["maxSqlQueryInputLength"], 524_288);
        assert_eq!(configuration["clientDisableOptimisticDirectExecution"], true);
    }
}
