//! Tokens of permissions: every permission that is shown comes with a fresh resource token.
//!
//! The node keeps permissions without tokens. A permission names its resource by a link; what its token grants is the
//! resource's id, so that a token dies with the resource and does not pass to a later one of the same name. Items are the
//! exception: clients name them by id, so a token for one is for whatever its container has under that id, now and later.

use bytes::Bytes;
use http::Uri;
use orrery_model::etag::Precondition;
use orrery_model::limits::ITEM_ID_BYTES_MAX;
use orrery_model::{IndexingDirective, PartitionKey, ResourceId, Result, Value};
use orrery_node::api::{
    ContainerRef, FeedTarget, Grant, ItemOperation, ItemSelector, ItemVerb, MetadataOperation, MetadataVerb, Operation,
    Options, Outcome, Page, Principal, QueryDiagnostics, QueryText, Resource, ResourceKind, Selector,
};
use orrery_node::{Reply, Request};
use serde::Deserialize;

use crate::auth::resource_token;
use crate::handler::Handler;
use crate::pipeline::Pipeline;
use crate::wire::headers::{Headers, names};
use crate::wire::{self, RouteKind};

/// Tokens are to be issued with the answer.
#[derive(Debug)]
pub(crate) struct TokenIssue {
    lifetime_seconds: u64,
}

/// What a permission says, as far as its token is concerned.
#[derive(Deserialize)]
struct Permission {
    #[serde(rename = "_rid")]
    rid: String,
    #[serde(default)]
    resource: String,
    #[serde(rename = "permissionMode", default)]
    mode: String,
    #[serde(rename = "resourcePartitionKey")]
    partition_key: Option<serde_json::Value>,
}

impl TokenIssue {
    /// `Some` if the answer to this operation will show permissions.
    pub fn for_operation(operation: &Operation, headers: Headers<'_>) -> Result<Option<TokenIssue>> {
        let shows_permissions = matches!(operation, Operation::Metadata(MetadataOperation { kind: ResourceKind::Permission, verb, .. })
            if !matches!(verb, MetadataVerb::Delete { .. }));
        if !shows_permissions {
            return Ok(None);
        }
        let lifetime_seconds = resource_token::lifetime_seconds(headers.text(&names::EXPIRY_SECONDS)?)?;
        Ok(Some(TokenIssue { lifetime_seconds }))
    }

    /// Adds a token to every permission of a reply.
    pub async fn put_into(&self, pipeline: &Pipeline, reply: &mut Reply) {
        match &mut reply.outcome {
            Outcome::Created(resource) | Outcome::Found(resource) => {
                resource.body = self.with_token(pipeline, &resource.body).await;
            }
            Outcome::Feed(feed) => {
                for entry in &mut feed.entries {
                    *entry = self.with_token(pipeline, entry).await;
                }
            }
            Outcome::Deleted
            | Outcome::NotModified { .. }
            | Outcome::Changes(_)
            | Outcome::Batch(_)
            | Outcome::Plan(_) => {}
        }
    }

    /// An object that is no permission, such as a projection a query made, stays as it is.
    async fn with_token(&self, pipeline: &Pipeline, body: &Bytes) -> Bytes {
        let Ok(permission) = serde_json::from_slice::<Permission>(body) else {
            return body.clone();
        };
        let Some(grant) = permission.grant(pipeline.parts().handler.as_ref()).await else {
            return body.clone();
        };
        let keyring = pipeline.authenticator().keyring(&pipeline.parts().handler.keys());
        let token = resource_token::issue(&keyring, &grant, self.lifetime_seconds, pipeline.now());
        let Some(open) = body.strip_suffix(b"}") else {
            return body.clone();
        };
        // The token's alphabet needs no escapes.
        [open, br#","_token":""#, token.as_bytes(), br#""}"#].concat().into()
    }
}

impl Permission {
    /// A permission for a resource that does not exist gets a token that allows nothing: a grant on the permission itself.
    async fn grant(&self, handler: &dyn Handler) -> Option<Grant> {
        let partition_key = self
            .partition_key
            .as_ref()
            .and_then(|key| PartitionKey::parse(&key.to_string()).ok());
        let (resource, item) = match self.resolve(handler, partition_key.as_ref()).await {
            Some(found) => found,
            None => (ResourceId::parse(&self.rid)?, None),
        };
        Some(Grant {
            resource,
            read_only: !self.mode.eq_ignore_ascii_case("all"),
            partition_key,
            item,
        })
    }

    /// The resource it names, and of an item the id.
    async fn resolve(
        &self,
        handler: &dyn Handler,
        partition_key: Option<&PartitionKey>,
    ) -> Option<(ResourceId, Option<String>)> {
        let uri = link_uri(&self.resource)?;
        let route = wire::route(&uri).ok()?;
        let target = route.target?;
        match route.kind {
            RouteKind::Items => {
                let [database, container] = <[Selector; 2]>::try_from(route.ancestors).ok()?;
                let id = match target {
                    Selector::Name(id) if id.len() > ITEM_ID_BYTES_MAX => return None,
                    Selector::Name(id) => id,
                    Selector::Rid(rid) => {
                        let container = ContainerRef {
                            database: database.clone(),
                            container: container.clone(),
                        };
                        match partition_key {
                            Some(key) => id_of(&look(handler, read_item(container, rid, key.clone())).await?)?,
                            None => find_id(handler, container, &rid).await?,
                        }
                    }
                };
                let container = match container {
                    Selector::Rid(rid) => rid,
                    Selector::Name(name) => {
                        let container = read_resource(ResourceKind::Container, vec![database], name);
                        rid_of(&look(handler, container).await?)?
                    }
                };
                Some((container, Some(id)))
            }
            RouteKind::Resource(kind) => {
                let rid = match target {
                    Selector::Rid(rid) => rid,
                    Selector::Name(name) => rid_of(&look(handler, read_resource(kind, route.ancestors, name)).await?)?,
                };
                Some((rid, None))
            }
            _ => None,
        }
    }
}

/// What an operation finds.
async fn look(handler: &dyn Handler, operation: Operation) -> Option<Bytes> {
    let request = Request {
        principal: Principal::Account { read_only: true },
        options: Options::default(),
        operation,
    };
    match handler.execute(request).await.ok()?.outcome {
        Outcome::Found(Resource { body, .. }) => Some(body),
        _ => None,
    }
}

fn read_item(container: ContainerRef, rid: ResourceId, partition_key: PartitionKey) -> Operation {
    Operation::Item(ItemOperation {
        container,
        partition_key: Some(partition_key),
        precondition: Precondition::None,
        directive: IndexingDirective::Default,
        verb: ItemVerb::Read {
            item: ItemSelector::Rid(rid),
        },
    })
}

/// The id of an item whose partition key nobody names: it is looked for.
async fn find_id(handler: &dyn Handler, container: ContainerRef, rid: &ResourceId) -> Option<String> {
    let query = QueryText {
        text: "SELECT VALUE c.id FROM c WHERE c._rid = @rid".to_owned(),
        parameters: vec![("@rid".to_owned(), Some(Value::String(rid.to_string())))],
        resume_filter: None,
    };
    let mut page = Page::default();
    loop {
        let request = Request {
            principal: Principal::Account { read_only: true },
            options: Options::default(),
            operation: Operation::Query {
                container: container.clone(),
                target: FeedTarget::default(),
                query: query.clone(),
                page: page.clone(),
                cross_partition: true,
                diagnostics: QueryDiagnostics::default(),
            },
        };
        let Outcome::Feed(feed) = handler.execute(request).await.ok()?.outcome else {
            return None;
        };
        if let Some(found) = feed.entries.first() {
            return serde_json::from_slice(found).ok();
        }
        page.continuation = Some(feed.continuation?);
    }
}

fn read_resource(kind: ResourceKind, path: Vec<Selector>, name: String) -> Operation {
    let verb = MetadataVerb::Read {
        target: Selector::Name(name),
        precondition: Precondition::None,
    };
    Operation::Metadata(MetadataOperation { kind, path, verb })
}

fn id_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    Some(serde_json::from_slice::<Named>(body).ok()?.id)
}

fn rid_of(body: &[u8]) -> Option<ResourceId> {
    #[derive(Deserialize)]
    struct Identified<'a> {
        #[serde(rename = "_rid", borrow)]
        rid: &'a str,
    }
    ResourceId::parse(serde_json::from_slice::<Identified<'_>>(body).ok()?.rid)
}

/// A link as the path of a URL. Links hold names as they are, so everything a path cannot hold is escaped.
fn link_uri(link: &str) -> Option<Uri> {
    let mut path = String::with_capacity(link.len() + 1);
    path.push('/');
    for byte in link.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' | b'=' | b'+' => {
                path.push(byte.into())
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_with_any_name_become_paths_that_lead_to_the_same_resource() {
        for (link, name) in [
            ("dbs/a b/colls/ü%?#", "ü%?#"),
            ("/dbs/x/colls/y/", "y"),
            ("dbs/x/colls/y/docs/1+1", "1+1"),
        ] {
            let uri = link_uri(link).expect(link);
            let route = wire::route(&uri).expect(link);
            assert_eq!(route.target, Some(Selector::Name(name.to_owned())));
        }
    }
}
