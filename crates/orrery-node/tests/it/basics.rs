use crate::support::{World, body_of, code, item};
use orrery_node::api::{ItemSelector, ItemVerb};

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
