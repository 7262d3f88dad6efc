use crate::support::{World, body_of, code, container, item};
use orrery_model::etag::Precondition;
use orrery_model::{IndexingDirective, PartitionKey};
use orrery_node::api::{ItemOperation, ItemSelector, ItemVerb, Operation};

#[tokio::test]
async fn an_item_can_be_created_read_replaced_and_deleted() {
    let world = World::new().await;
    world.with_container("").await;
    let created = body_of(world.create("p", r#"{"id":"a","pk":"p","n":1}"#).await.unwrap());
    assert_eq!(created.get("n").unwrap().to_text(), "1");
    assert!(created.get("_rid").is_some() && created.get("_etag").is_some() && created.get("_ts").is_some());
    assert_eq!(body_of(world.read("p", "a").await.unwrap()), created);
    assert_eq!(code(world.create("p", r#"{"id":"a","pk":"p"}"#).await), 409);
    let replace = ItemVerb::Replace {
        item: ItemSelector::Id("a".into()),
        body: item(r#"{"id":"a","pk":"p","n":2}"#),
    };
    let replaced = body_of(world.item("p", replace).await.unwrap());
    assert_eq!(replaced.get("_rid"), created.get("_rid"));
    assert_ne!(replaced.get("_etag"), created.get("_etag"));
    assert_eq!(
        code(
            world
                .item(
                    "p",
                    ItemVerb::Delete {
                        item: ItemSelector::Id("a".into())
                    }
                )
                .await
        ),
        204
    );
    assert_eq!(code(world.read("p", "a").await), 404);
}

#[tokio::test]
async fn a_replace_may_give_an_item_another_id() {
    let world = World::new().await;
    world.with_container("").await;
    let created = body_of(world.create("p", r#"{"id":"a","pk":"p","n":1}"#).await.unwrap());
    // Read, so that it is in the cache under its first id.
    assert_eq!(code(world.read("p", "a").await), 200);
    let rename = |from: &str, to: &str| ItemVerb::Replace {
        item: ItemSelector::Id(from.into()),
        body: item(&format!(r#"{{"id":"{to}","pk":"p","n":2}}"#)),
    };
    let renamed = body_of(world.item("p", rename("a", "b")).await.unwrap());
    assert_eq!(renamed.get("_rid"), created.get("_rid"));
    assert_eq!(code(world.read("p", "a").await), 404);
    assert_eq!(body_of(world.read("p", "b").await.unwrap()), renamed);
    assert_eq!(world.query("SELECT VALUE c.id FROM c").await.unwrap(), [r#""b""#]);
    assert_eq!(
        world.query("SELECT VALUE c.n FROM c WHERE c.id = 'a'").await.unwrap(),
        [""; 0]
    );
    world.create("p", r#"{"id":"a","pk":"p"}"#).await.unwrap();
    assert_eq!(code(world.item("p", rename("b", "a")).await), 409);
    let elsewhere = ItemVerb::Replace {
        item: ItemSelector::Id("b".into()),
        body: item(r#"{"id":"c","pk":"q"}"#),
    };
    assert_eq!(code(world.item("p", elsewhere).await), 400);
}

#[tokio::test]
async fn an_item_whose_key_is_an_object_is_kept_without_a_key() {
    let world = World::new().await;
    world.with_container("").await;
    let body = r#"{"id":"a","pk":{"city":"Ulm"}}"#;
    assert_eq!(code(world.create("p", body).await), 400);
    let create = ItemVerb::Create { body: item(body) };
    let created = world.execute(Operation::Item(ItemOperation {
        container: container(),
        partition_key: Some(PartitionKey::parse("[{}]").unwrap()),
        precondition: Precondition::None,
        directive: IndexingDirective::Default,
        verb: create,
    }));
    created.await.unwrap();
    let rows = world
        .query("SELECT VALUE c.pk.city FROM c WHERE c.pk = {\"city\":\"Ulm\"}")
        .await;
    assert_eq!(rows.unwrap(), [r#""Ulm""#]);
}
