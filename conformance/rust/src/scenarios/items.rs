//! Items: writing, reading, names and contents.

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::options::{ContentResponseOnWrite, ItemWriteOptions, OperationOptionsBuilder};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Cases, cases};
use crate::scene::{Scene, etag, expect_refusal, expect_success, with_content, without_system_properties};

pub fn cases() -> Cases {
    cases![
        "item-create-and-read" => [create_and_read],
        "item-create-twice-is-409" => [create_twice_is_409],
        "item-same-id-in-two-partitions" => [same_id_in_two_partitions],
        "item-missing-is-404" => [missing_is_404],
        "item-in-missing-container-is-404" => [in_missing_container_is_404],
        "item-replace" => [replace],
        "item-replace-missing-is-404" => [replace_missing_is_404],
        "item-upsert-creates-then-replaces" => [upsert_creates_then_replaces],
        "item-delete" => [delete],
        "item-id-special-characters" => [id_special_characters],
        "item-id-reserved-characters" => [id_reserved_characters],
        "item-without-id-is-400" => [without_id_is_400],
        "item-64-bit-integers" => [integers_of_64_bits],
        "item-unicode-and-nesting" => [unicode_and_nesting],
        "item-large" => [large],
        "item-too-large-is-413" => [too_large_is_413],
        "item-no-content-response" => [no_content_response],
        "item-request-charge" => [request_charge],
        "item-read-feed-pages" => [skip "The SDK reads items one by one or by query; it has no call for the feed."],
        "item-concurrent-creates-one-wins" => [concurrent_creates_one_wins],
    ]
}

async fn create_and_read(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let written = json!({"id": "1", "pk": "a", "name": "first", "n": 1.5, "none": null, "yes": true});
    let created = container.create_item("a", "1", &written, Some(with_content())).await?;
    expect_success(&created, 201)?;
    let created_etag = etag(&created)?;
    let created: Value = created.into_model()?;
    let read = container.read_item("a", "1", None).await?;
    expect_success(&read, 200)?;
    ensure!(etag(&read)? == created_etag, "the etag changed");
    let read: Value = read.into_model()?;
    ensure!(read == created, "created {created}, read {read}");
    ensure!(without_system_properties(read.clone()) == written, "read {read}");
    for name in ["_rid", "_self", "_etag", "_attachments"] {
        ensure!(
            read[name].as_str().is_some_and(|text| !text.is_empty()),
            "no {name} in {read}"
        );
    }
    ensure!(
        read["_ts"].as_i64().is_some_and(|seconds| seconds > 1_600_000_000),
        "no _ts in {read}"
    );
    ensure!(
        read["_etag"] == created_etag.to_string(),
        "the header and the item have different etags"
    );
    Ok(())
}

async fn create_twice_is_409(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    container
        .create_item("a", "1", json!({"id": "1", "pk": "a", "n": 1}), None)
        .await?;
    expect_refusal(
        container
            .create_item("a", "1", json!({"id": "1", "pk": "a", "n": 2}), None)
            .await,
        409,
    )?;
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(read["n"] == 1, "the refused create changed the item");
    Ok(())
}

async fn same_id_in_two_partitions(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    for key in ["a", "b"] {
        container
            .create_item(key, "1", json!({"id": "1", "pk": key}), None)
            .await?;
    }
    for key in ["a", "b"] {
        let read: Value = container.read_item(key, "1", None).await?.into_model()?;
        ensure!(read["pk"] == key, "under {key}: {read}");
    }
    Ok(())
}

async fn missing_is_404(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    expect_refusal(container.read_item("a", "1", None).await, 404)?;
    Ok(())
}

async fn in_missing_container_is_404(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    // The client must have known the container: otherwise the SDK does not get as far as the item.
    scene
        .another_client()
        .await?
        .database_client(&scene.name)
        .container_client(&scene.name, None)
        .await?
        .delete(None)
        .await?;
    expect_refusal(
        container
            .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
            .await,
        404,
    )?;
    expect_refusal(container.read_item("a", "1", None).await, 404)?;
    Ok(())
}

async fn replace(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let first = container
        .create_item("a", "1", json!({"id": "1", "pk": "a", "n": 1}), Some(with_content()))
        .await?;
    let first: Value = first.into_model()?;
    let second = container
        .replace_item("a", "1", json!({"id": "1", "pk": "a", "n": 2}), Some(with_content()))
        .await?;
    expect_success(&second, 200)?;
    let second: Value = second.into_model()?;
    ensure!(second["n"] == 2, "{second}");
    ensure!(second["_etag"] != first["_etag"], "the etag stayed");
    ensure!(second["_rid"] == first["_rid"], "the _rid changed");
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(read == second, "replaced {second}, read {read}");
    Ok(())
}

async fn replace_missing_is_404(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    expect_refusal(
        container
            .replace_item("a", "1", json!({"id": "1", "pk": "a"}), None)
            .await,
        404,
    )?;
    Ok(())
}

async fn upsert_creates_then_replaces(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let created = container
        .upsert_item("a", "1", json!({"id": "1", "pk": "a", "n": 1}), None)
        .await?;
    expect_success(&created, 201)?;
    let replaced = container
        .upsert_item("a", "1", json!({"id": "1", "pk": "a", "n": 2}), None)
        .await?;
    expect_success(&replaced, 200)?;
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(read["n"] == 2, "{read}");
    Ok(())
}

async fn delete(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    container
        .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
        .await?;
    expect_success(&container.delete_item("a", "1", None).await?, 204)?;
    expect_refusal(container.read_item("a", "1", None).await, 404)?;
    expect_refusal(container.delete_item("a", "1", None).await, 404)?;
    Ok(())
}

async fn id_special_characters(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    for id in [
        "two words",
        "\"quoted\"",
        "it's",
        "100%",
        "%41",
        "a+b",
        "ünï-日本-🪐",
        "a&b=c;d",
        "(x)[y]{z}",
        "~!@$^*,.:|<>`",
    ] {
        let written = json!({"id": id, "pk": id});
        container
            .create_item(id.to_owned(), id, &written, None)
            .await
            .with_context(|| format!("creating {id}"))?;
        let read = container
            .read_item(id.to_owned(), id, None)
            .await
            .with_context(|| format!("reading {id}"))?;
        let read: Value = read.into_model()?;
        ensure!(
            without_system_properties(read.clone()) == written,
            "wrote {written}, read {read}"
        );
        container
            .replace_item(id.to_owned(), id, &written, None)
            .await
            .with_context(|| format!("replacing {id}"))?;
        container
            .delete_item(id.to_owned(), id, None)
            .await
            .with_context(|| format!("deleting {id}"))?;
    }
    Ok(())
}

async fn id_reserved_characters(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    for id in ["a/b", "a\\b", "a?b", "a#b"] {
        let written = json!({"id": id, "pk": "a"});
        container
            .create_item("a", id, &written, None)
            .await
            .with_context(|| format!("creating {id}"))?;
        expect_refusal(container.create_item("a", id, &written, None).await, 409)?;
    }
    Ok(())
}

async fn without_id_is_400(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    expect_refusal(container.create_item("a", "1", json!({"pk": "a"}), None).await, 400)?;
    Ok(())
}

async fn integers_of_64_bits(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let numbers = json!([
        0,
        -1,
        9_007_199_254_740_993_i64,
        -9_007_199_254_740_993_i64,
        i64::MAX,
        i64::MIN
    ]);
    container
        .create_item("a", "1", json!({"id": "1", "pk": "a", "numbers": numbers}), None)
        .await?;
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(read["numbers"] == numbers, "wrote {numbers}, read {}", read["numbers"]);
    Ok(())
}

async fn unicode_and_nesting(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let mut deep = json!("bottom");
    for level in 0..40 {
        deep = if level % 2 == 0 {
            json!([deep])
        } else {
            json!({ "level": deep })
        };
    }
    let written = json!({
        "id": "1",
        "pk": "a",
        "text": "Grüße, 世界, Привет, 🪐👩‍👩‍👧, e\u{301}, \u{0}\u{1f}\u{7f}\u{2028}\u{feff}, \"\\/\n\t",
        "ключ": {"": "", "nested": [[], {}, [1, [2.5, -3e-7, [true, null]]], {"a": {"b": [{"c": "d"}]}}]},
        "long": "ab".repeat(5000),
        "many": (0..300).collect::<Vec<_>>(),
        "deep": deep,
    });
    container.create_item("a", "1", &written, None).await?;
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    let read = without_system_properties(read);
    for (name, value) in written.as_object().context("an object")? {
        ensure!(read[name] == *value, "{name} came back as {}", read[name]);
    }
    ensure!(read == written, "properties were added");
    Ok(())
}

async fn large(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let text = "0123456789abcdef".repeat(96 * 1024);
    expect_success(
        &container
            .create_item("a", "1", json!({"id": "1", "pk": "a", "text": text}), None)
            .await?,
        201,
    )?;
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(read["text"] == text, "the text came back changed");
    Ok(())
}

async fn too_large_is_413(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let text = "x".repeat(2 * 1024 * 1024 + 1024);
    expect_refusal(
        container
            .create_item("a", "1", json!({"id": "1", "pk": "a", "text": text}), None)
            .await,
        413,
    )?;
    Ok(())
}

async fn no_content_response(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let without = || {
        let operation = OperationOptionsBuilder::new().with_content_response_on_write(ContentResponseOnWrite::Disabled);
        Some(ItemWriteOptions::default().with_operation_options(operation.build()))
    };
    let item = json!({"id": "1", "pk": "a"});
    let answers = [
        container.create_item("a", "1", &item, without()).await?,
        container.replace_item("a", "1", &item, without()).await?,
        container.upsert_item("a", "1", &item, without()).await?,
    ];
    for answer in answers {
        etag(&answer)?;
        ensure!(answer.into_body().is_empty(), "the answer has a body");
    }
    let with = container.upsert_item("a", "1", &item, Some(with_content())).await?;
    ensure!(
        !with.into_body().is_empty(),
        "the content that was asked for is missing"
    );
    Ok(())
}

async fn request_charge(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let item = json!({"id": "1", "pk": "a"});
    let answers = [
        container.create_item("a", "1", &item, None).await?,
        container.read_item("a", "1", None).await?,
        container.replace_item("a", "1", &item, None).await?,
        container.upsert_item("a", "1", &item, None).await?,
        container.delete_item("a", "1", None).await?,
    ];
    for answer in &answers {
        let charge = answer.headers().request_charge().context("an answer has no charge")?;
        ensure!(charge.value() > 0.0, "a charge of {charge:?}");
    }
    let refused = expect_refusal(container.read_item("a", "1", None).await, 404)?;
    let response = refused.response().context("the refusal is an answer")?;
    let charge = response
        .headers()
        .request_charge
        .as_ref()
        .context("the refusal has no charge")?;
    ensure!(charge.value() > 0.0, "a refusal for {charge:?}");
    Ok(())
}

async fn concurrent_creates_one_wins(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let creates = (0..20).map(|n| {
        let container = container.clone();
        async move {
            container
                .create_item("a", "1", json!({"id": "1", "pk": "a", "n": n}), None)
                .await
        }
    });
    let mut n_created = 0;
    for result in join_all(creates).await {
        match result {
            Ok(_) => n_created += 1,
            refused => drop(expect_refusal(refused, 409)?),
        }
    }
    ensure!(n_created == 1, "{n_created} creates succeeded");
    Ok(())
}
