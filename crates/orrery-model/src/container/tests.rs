use proptest::prelude::*;

use super::index_path::{IndexPath, IndexSegment, Reach};
use super::*;
use crate::key::{KeyKind, KeyVersion};

fn value(text: &str) -> Value {
    json::parse_value(text.as_bytes()).unwrap()
}

/// A definition with `/pk` as its key and these further members.
fn body(members: &str) -> Value {
    let separator = if members.is_empty() { "" } else { "," };
    value(&format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{separator}{members}}}"#
    ))
}

fn create(members: &str) -> ContainerDefinition {
    ContainerDefinition::create(&body(members)).unwrap()
}

fn shown(definition: &ContainerDefinition, name: &str) -> String {
    definition.fields().get(name).unwrap().to_text()
}

fn message(result: Result<ContainerDefinition>, code: u16) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.status().code, code, "{error}");
    error.message().to_owned()
}

fn refused(members: &str, part: &str) {
    let message = message(ContainerDefinition::create(&body(members)), 400);
    assert!(message.contains(part), "{members}: {message}");
}

const DEFAULT_INDEXING: &str = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#;

#[test]
fn a_new_container_gets_the_services_defaults() {
    let definition = create("");
    assert_eq!(
        Value::Object(definition.fields().clone()).to_text(),
        format!(
            r#"{{"id":"c","indexingPolicy":{DEFAULT_INDEXING},"partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"conflictResolutionPolicy":{{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""}},"geospatialConfig":{{"type":"Geography"}}}}"#
        )
    );
    assert_eq!(definition.default_ttl(), None);
    assert_eq!(definition.change_feed_retention_minutes(), None);
}

#[test]
fn unknown_members_stay_and_system_properties_go() {
    let definition = create(
        r#""newPolicy":{"a":[1]},"_rid":"x","_self":"y","_etag":"z","_ts":1,"_docs":"docs/","_conflicts":"c","defaultTtl":null"#,
    );
    assert_eq!(shown(&definition, "newPolicy"), r#"{"a":[1]}"#);
    assert!(definition.fields().iter().all(|(name, _)| !name.starts_with('_')));
    assert!(!definition.fields().contains("defaultTtl"));
}

#[test]
fn the_id_and_the_partition_key_are_required() {
    let check = |text: &str, part: &str| {
        let message = message(ContainerDefinition::create(&value(text)), 400);
        assert!(message.contains(part), "{text}: {message}");
    };
    check("[]", "JSON object");
    check(r#"{"partitionKey":{"paths":["/pk"]}}"#, "'id; '");
    check(r#"{"id":7,"partitionKey":{"paths":["/pk"]}}"#, "'id' must be a string");
    check(
        r#"{"id":"a/b","partitionKey":{"paths":["/pk"]}}"#,
        "The input name 'a/b' is invalid",
    );
    check(r#"{"id":"c"}"#, "'partitionKey; '");
    check(
        r#"{"id":"c","partitionKey":{}}"#,
        "Partition key paths cannot be empty.",
    );
    check(r#"{"id":"c","partitionKey":"/pk"}"#, "'partitionKey' must be an object");
}

#[test]
fn partition_keys_of_every_kind_are_read() {
    let key = |text: &str| ContainerDefinition::create(&value(&format!(r#"{{"id":"c","partitionKey":{text}}}"#)));
    for (text, kind, version, n_paths) in [
        (r#"{"paths":["/a"]}"#, KeyKind::Hash, KeyVersion::V1, 1),
        (r#"{"paths":["/a"],"version":2}"#, KeyKind::Hash, KeyVersion::V2, 1),
        (r#"{"paths":["/a"],"version":"V1"}"#, KeyKind::Hash, KeyVersion::V1, 1),
        (r#"{"paths":["/a"],"version":"V2"}"#, KeyKind::Hash, KeyVersion::V2, 1),
        (r#"{"paths":["/a"],"kind":"Range"}"#, KeyKind::Hash, KeyVersion::V1, 1),
        (
            r#"{"paths":["/a","/b"],"kind":"Range"}"#,
            KeyKind::Hash,
            KeyVersion::V1,
            2,
        ),
        (r#"{"paths":["/a","/b"],"version":2}"#, KeyKind::Hash, KeyVersion::V2, 2),
        (
            r#"{"paths":["/a","/b/c","/\"d e\""],"kind":"multihash"}"#,
            KeyKind::MultiHash,
            KeyVersion::V2,
            3,
        ),
    ] {
        let definition = key(text).unwrap();
        let key = definition.partition_key();
        assert_eq!(
            (key.kind(), key.version(), key.paths().len()),
            (kind, version, n_paths),
            "{text}"
        );
    }
    // Version 1 is what the lack of a version means, and is shown so.
    for (given, expected) in [
        (r#"{"paths":["/a"],"kind":"hash"}"#, r#"{"paths":["/a"],"kind":"Hash"}"#),
        (
            r#"{"paths":["/a"],"version":null}"#,
            r#"{"paths":["/a"],"kind":"Hash"}"#,
        ),
        (
            r#"{"paths":["/a"],"version":1}"#,
            r#"{"paths":["/a"],"kind":"Hash","version":1}"#,
        ),
        (
            r#"{"paths":["/a"],"kind":"MultiHash"}"#,
            r#"{"paths":["/a"],"kind":"MultiHash","version":2}"#,
        ),
    ] {
        assert_eq!(shown(&key(given).unwrap(), "partitionKey"), expected, "{given}");
    }
    let system = key(r#"{"paths":["/_partitionKey"],"kind":"Hash","systemKey":true}"#).unwrap();
    assert!(system.partition_key().system_key());
    assert!(shown(&system, "partitionKey").contains(r#""systemKey":true"#));
}

#[test]
fn impossible_partition_keys_are_refused() {
    for (text, part) in [
        (
            r#"{"paths":["pk"]}"#,
            "path 'pk' could not be accepted, failed near position '0'",
        ),
        (r#"{"paths":["/pk/"]}"#, "failed near position '3'"),
        (r#"{"paths":["/pk/*"]}"#, "trailing slash or wildcard"),
        (r#"{"paths":["/"]}"#, "could not be accepted"),
        (r#"{"paths":[7]}"#, "must be strings"),
        (r#"{"paths":["/_ts"]}"#, "system property"),
        (r#"{"paths":["/a","/b","/c","/d"]}"#, "Too many partition key paths"),
        (
            r#"{"paths":["/a","/b","/c","/d"],"kind":"MultiHash"}"#,
            "Too many partition key paths",
        ),
        (r#"{"paths":["/a","/\"a\""],"kind":"MultiHash"}"#, "cannot repeat"),
        (r#"{"paths":["/a"],"kind":"MultiHash","version":1}"#, "version 2"),
        (r#"{"paths":["/a"],"version":3}"#, "version 3 is invalid"),
        (r#"{"paths":["/a"],"kind":"Round"}"#, "kind 'Round' is invalid"),
    ] {
        let text = format!(r#"{{"id":"c","partitionKey":{text}}}"#);
        let message = message(ContainerDefinition::create(&value(&text)), 400);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn indexing_policies_take_the_services_form() {
    let check = |given: &str, expected: &str| {
        assert_eq!(
            shown(&create(&format!(r#""indexingPolicy":{given}"#)), "indexingPolicy"),
            expected,
            "{given}"
        );
    };
    check("{}", DEFAULT_INDEXING);
    check(
        r#"{"indexingMode":"Consistent","includedPaths":[],"excludedPaths":[]}"#,
        DEFAULT_INDEXING,
    );
    check(r#"{"includedPaths":[{"path":"/"}]}"#, DEFAULT_INDEXING);
    check(
        r#"{"indexingMode":"None","automatic":false}"#,
        r#"{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}"#,
    );
    check(
        r#"{"automatic":false,"includedPaths":[{"path":"/a/[]/\"b c\"/?","indexes":[{"kind":"Range","dataType":"String","precision":-1}]}],"excludedPaths":[{"path":"/*"}]}"#,
        r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/a/[]/\"b c\"/?"}],"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}"#,
    );
    let composite = create(
        r#""indexingPolicy":{"compositeIndexes":[[{"path":"/a","order":"Descending"},{"path":"/b"}]],"spatialIndexes":[{"path":"/p/*","types":["point","POLYGON"]}]}"#,
    );
    let policy = composite.indexing_policy();
    assert_eq!(
        policy.get("compositeIndexes").unwrap().to_text(),
        r#"[[{"path":"/a","order":"descending"},{"path":"/b","order":"ascending"}]]"#
    );
    assert_eq!(
        policy.get("spatialIndexes").unwrap().to_text(),
        r#"[{"path":"/p/*","types":["Point","Polygon"]}]"#
    );
}

#[test]
fn invalid_indexing_policies_are_refused() {
    for (policy, part) in [
        (r#"{"indexingMode":"lazy"}"#, "Lazy"),
        (r#"{"indexingMode":"eager"}"#, "'eager' is invalid"),
        (r#"{"indexingMode":"none","automatic":true}"#, "cannot be automatic"),
        (
            r#"{"indexingMode":"none","includedPaths":[{"path":"/*"}]}"#,
            "cannot have paths",
        ),
        (
            r#"{"includedPaths":[{"path":"/a/?"}]}"#,
            "special mandatory indexing path \"/\" is not provided",
        ),
        (
            r#"{"excludedPaths":[{"path":"/a/?"}]}"#,
            "special mandatory indexing path",
        ),
        (
            r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/*"}]}"#,
            "more than once",
        ),
        (
            r#"{"includedPaths":[{"path":"/*"},{"path":"/a"}]}"#,
            "The indexing path '/a' could not be accepted",
        ),
        (
            r#"{"includedPaths":[{"path":"/*"},{"path":"/a/*/b/?"}]}"#,
            "failed near position '3'",
        ),
        (
            r#"{"includedPaths":[{"path":"a/?"},{"path":"/*"}]}"#,
            "failed near position '0'",
        ),
        (r#"{"includedPaths":[{}]}"#, "'path; '"),
        (r#"{"includedPaths":{}}"#, "must be an array"),
        (r#"{"includedPaths":["/*"]}"#, "array of objects"),
        (r#"{"automatic":"yes"}"#, "must be a boolean"),
        (r#"{"compositeIndexes":[[{"path":"/a"}]]}"#, "between 2 and 8"),
        (r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b/*"}]]}"#, "wildcard"),
        (
            r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"up"}]]}"#,
            "'up' of 'order'",
        ),
        (r#"{"spatialIndexes":[{"path":"/p/*","types":["Cube"]}]}"#, "Cube"),
    ] {
        refused(&format!(r#""indexingPolicy":{policy}"#), part);
    }
}

#[test]
fn vector_and_full_text_policies_must_agree_with_their_indexes() {
    let embeddings = r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","dataType":"Float32","dimensions":256,"distanceFunction":"Cosine"}]}"#;
    let vector = |index: &str| format!(r#"{embeddings},"indexingPolicy":{{"vectorIndexes":[{index}]}}"#);
    let definition = create(&vector(r#"{"path":"/v","type":"DiskANN","quantizationByteSize":64}"#));
    assert!(
        shown(&definition, "indexingPolicy").contains(r#"{"path":"/v","type":"diskANN","quantizationByteSize":64}"#)
    );
    assert!(
        shown(&definition, "vectorEmbeddingPolicy")
            .contains(r#""dataType":"float32","dimensions":256,"distanceFunction":"cosine""#)
    );
    refused(
        &vector(r#"{"path":"/w","type":"flat"}"#),
        "path::/w not matching in Embedding's path",
    );
    refused(
        &vector(r#"{"path":"/v","type":"notFlat"}"#),
        "Index Type::notFlat is invalid",
    );
    refused(
        &vector(r#"{"path":"/v","type":"diskANN","quantizationByteSize":0}"#),
        "QuantizationByteSize value :: 0 is out of range",
    );
    refused(
        r#""indexingPolicy":{"vectorIndexes":[{"path":"/v","type":"flat"}]}"#,
        "not matching in Embedding's path",
    );
    refused(
        r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","dimensions":-1}]}"#,
        "The Vector Embedding Policy has Dimensions:-1",
    );
    refused(
        r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","dataType":"float64"}]}"#,
        "The Vector Embedding Policy has an invalid DataType:float64",
    );
    refused(
        r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","distanceFunction":"miles"}]}"#,
        "invalid DistanceFunction:miles",
    );
    refused(
        &vector(r#"{"path":"/v","type":"diskANN","quantizationByteSize":257}"#),
        "The allowed range is between 1 and 256.",
    );
    refused(
        &vector(r#"{"path":"/v","type":"diskANN","indexingSearchListSize":24}"#),
        "The allowed range is between 25 and 500.",
    );
    create(&vector(
        r#"{"path":"/v","type":"diskANN","vectorIndexShardKey":["/country"]}"#,
    ));
    for (key, complaint) in [
        (r#"["country"]"#, "invalid Shard Path: country."),
        (
            r#"["/a","/b"]"#,
            "The number of shard paths defined in the Vector Indexing Policy: 2",
        ),
        (r#""/country""#, "One of the specified inputs is invalid"),
    ] {
        let index = format!(r#"{{"path":"/v","type":"diskANN","vectorIndexShardKey":{key}}}"#);
        refused(&vector(&index), complaint);
    }
    refused(r#""vectorEmbeddingPolicy":{}"#, "vectorEmbeddings");

    let text = r#""fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/t","language":"en-US"}]}"#;
    let index = |index: &str| format!(r#"{text},"indexingPolicy":{{"fullTextIndexes":[{index}]}}"#);
    create(&index(r#"{"path":"/t"}"#));
    refused(
        &index(r#"{"path":"/x"}"#),
        "The path of the Full Text Index /x does not match",
    );
    refused(&index(r#"{"path":"t"}"#), "at index (0) contains invalid path");
    refused(&index("{}"), "at index (0)");
}

#[test]
fn the_smaller_policies_are_checked() {
    let definition = create(
        r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b/c"]}]},"defaultTtl":60,"changeFeedPolicy":{"retentionDuration":30},"computedProperties":[{"name":"low","query":"SELECT VALUE LOWER(c.n) FROM c"}],"conflictResolutionPolicy":{"mode":"lastwriterwins","conflictResolutionPath":"/n"},"geospatialConfig":{"type":"geometry"},"analyticalStorageTtl":-1"#,
    );
    assert_eq!(definition.unique_keys()[0].paths[1].segments(), ["b", "c"]);
    assert_eq!(definition.default_ttl(), Some(60));
    assert_eq!(definition.change_feed_retention_minutes(), Some(30));
    assert!(
        shown(&definition, "conflictResolutionPolicy")
            .contains(r#""mode":"LastWriterWins","conflictResolutionPath":"/n""#)
    );
    assert_eq!(shown(&definition, "geospatialConfig"), r#"{"type":"Geometry"}"#);
    assert_eq!(create(r#""defaultTtl":-1"#).default_ttl(), Some(-1));

    let eleven = [r#"{"paths":["/a"]}"#; 11].join(",");
    let seventeen = [r#""/a""#; 17].join(",");
    let computed = [r#"{"name":"x","query":"q"}"#; 2].join(",");
    for (members, part) in [
        (r#""defaultTtl":0"#.to_owned(), "The input ttl '0' is invalid"),
        (r#""defaultTtl":-2"#.to_owned(), "The input ttl '-2' is invalid"),
        (r#""defaultTtl":1.5"#.to_owned(), "The input ttl '1.5' is invalid"),
        (r#""defaultTtl":2147483648"#.to_owned(), "ttl"),
        (r#""defaultTtl":"60""#.to_owned(), "ttl"),
        (
            format!(r#""uniqueKeyPolicy":{{"uniqueKeys":[{eleven}]}}"#),
            "unique keys cannot exceed 10",
        ),
        (
            format!(r#""uniqueKeyPolicy":{{"uniqueKeys":[{{"paths":[{seventeen}]}}]}}"#),
            "between 1 and 16",
        ),
        (
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["a"]}]}"#.to_owned(),
            "unique key path \"a\" is invalid",
        ),
        (
            r#""changeFeedPolicy":{"retentionDuration":-1}"#.to_owned(),
            "retentionDuration",
        ),
        (
            format!(r#""computedProperties":[{computed}]"#),
            "'x' is invalid or repeated",
        ),
        (r#""computedProperties":[{"name":"_ts","query":"q"}]"#.to_owned(), "_ts"),
        (r#""conflictResolutionPolicy":{"mode":"First"}"#.to_owned(), "First"),
        (
            r#""conflictResolutionPolicy":{"conflictResolutionProcedure":"p"}"#.to_owned(),
            "mode Custom",
        ),
        (r#""geospatialConfig":{"type":"Flat"}"#.to_owned(), "Flat"),
        (r#""analyticalStorageTtl":"x""#.to_owned(), "analyticalStorageTtl"),
        (
            r#""clientEncryptionPolicy":{"includedPaths":[{"path":"/a"}]}"#.to_owned(),
            "clientEncryptionKeyId",
        ),
    ] {
        refused(&members, part);
    }
}

#[test]
fn an_object_with_very_many_members_is_refused() {
    let many: Vec<String> = (0..1001).map(|n| format!("\"m{n}\":1")).collect();
    refused(&format!("\"x\":{{{}}}", many.join(",")), "more than 1000 members");
}

#[test]
fn a_replace_changes_policies_but_neither_id_nor_keys() {
    let unique = r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]}"#;
    let definition = create(&format!(
        r#"{unique},"conflictResolutionPolicy":{{"conflictResolutionPath":"/n"}},"defaultTtl":5"#
    ));
    let replaced = definition
        .replace(&body(&format!(
            r#"{unique},"indexingPolicy":{{"indexingMode":"none"}}"#
        )))
        .unwrap();
    assert_eq!(replaced.default_ttl(), None);
    assert_eq!(
        replaced.indexing_policy().get("indexingMode").unwrap().as_str(),
        Some("none")
    );
    assert_eq!(
        replaced.fields().get("conflictResolutionPolicy"),
        definition.fields().get("conflictResolutionPolicy")
    );

    let own = Value::Object(definition.fields().clone());
    assert_eq!(definition.replace(&own).unwrap(), definition);
    let with = |name: &str, other: &str| {
        let Value::Object(mut fields) = own.clone() else {
            unreachable!()
        };
        fields.insert(name, value(other));
        definition.replace(&Value::Object(fields))
    };
    message(with("id", "\"d\""), 400);
    assert_eq!(
        message(with("partitionKey", r#"{"paths":["/x"],"version":2}"#), 400),
        "Document collection partition key cannot be changed."
    );
    message(with("partitionKey", r#"{"paths":["/pk"],"version":1}"#), 400);
    message(with("partitionKey", "null"), 400);
    with("partitionKey", r#"{"paths":["/\"pk\""],"version":2}"#).unwrap();
    assert!(message(with("uniqueKeyPolicy", "null"), 403).starts_with("The unique index cannot be modified."));
    message(with("uniqueKeyPolicy", r#"{"uniqueKeys":[{"paths":["/b"]}]}"#), 403);
    message(with("conflictResolutionPolicy", r#"{"mode":"Custom"}"#), 400);
}

#[test]
fn embeddings_can_be_added_but_not_changed() {
    let policy = |embeddings: &str| format!(r#""vectorEmbeddingPolicy":{{"vectorEmbeddings":[{embeddings}]}}"#);
    let definition = create(&policy(r#"{"path":"/v","dimensions":8}"#));
    definition
        .replace(&body(&policy(r#"{"path":"/v","dimensions":8},{"path":"/w"}"#)))
        .unwrap();
    assert_eq!(definition.replace(&body("")).unwrap(), definition);
    message(
        definition.replace(&body(&policy(r#"{"path":"/v","dimensions":9}"#))),
        400,
    );
    message(definition.replace(&body(&policy(r#"{"path":"/w"}"#))), 400);
}

#[test]
fn a_stored_definition_may_be_older_than_what_clients_are_held_to() {
    let languages = |tag: &str| format!(r#""fullTextPolicy":{{"defaultLanguage":"{tag}","fullTextPaths":[]}}"#);
    create(&languages("pt-BR"));
    refused(&languages("spa-SPA"), "unsupported language spa-SPA");
    let older = body(&languages("spa-SPA")).to_text();
    ContainerDefinition::from_stored(older.as_bytes()).unwrap();
}

#[test]
fn vector_indexes_can_be_added_and_dropped_but_not_changed_and_come_with_their_embeddings() {
    let embeddings = r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","dimensions":8}]}"#;
    let indexes = |indexes: &str| format!(r#""indexingPolicy":{{"vectorIndexes":[{indexes}]}}"#);
    let flat = indexes(r#"{"path":"/v","type":"flat"}"#);
    let definition = create(&format!("{embeddings},{flat}"));
    assert_eq!(
        definition.replace(&body(&format!("{embeddings},{flat}"))).unwrap(),
        definition
    );
    definition.replace(&body("")).unwrap();
    message(definition.replace(&body(&flat)), 400);
    let other = indexes(r#"{"path":"/v","type":"quantizedFlat"}"#);
    message(definition.replace(&body(&format!("{embeddings},{other}"))), 400);
}

#[test]
fn a_stored_definition_reads_back_byte_for_byte() {
    let full = create(
        r#""defaultTtl":1,"zeta":1,"indexingPolicy":{"indexingMode":"Consistent","excludedPaths":[{"path":"/"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b"}]],"extra":true},"uniqueKeyPolicy":{"uniqueKeys":[]},"conflictResolutionPolicy":{"mode":"Custom","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s"},"vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v"}]}"#,
    );
    for definition in [create(""), full] {
        let stored = definition.to_stored();
        let read = ContainerDefinition::from_stored(&stored).unwrap();
        assert_eq!(read, definition);
        assert_eq!(read.to_stored(), stored);
    }
    assert!(message(ContainerDefinition::from_stored(b"{}"), 500).contains("stored"));
}

#[test]
fn index_paths_are_read_segment_by_segment() {
    let name = |name: &str| IndexSegment::Name(name.to_owned());
    let tuple = IndexSegment::Tuple(vec!["n".to_owned(), "v".to_owned()]);
    for (text, segments, reach) in [
        ("/*", vec![], Reach::Everything),
        ("/a/?", vec![name("a")], Reach::Scalar),
        ("/a-b/c", vec![name("a-b"), name("c")], Reach::Exact),
        ("/\"a/\\\"b\"/*", vec![name("a/\"b")], Reach::Everything),
        (
            "/t/[]/{n, v}/?",
            vec![name("t"), IndexSegment::Elements, tuple],
            Reach::Scalar,
        ),
    ] {
        assert_eq!(IndexPath::parse(text), Ok(IndexPath { segments, reach }), "{text}");
    }
    for (text, at) in [
        ("", 0),
        ("a", 0),
        ("/a//b", 3),
        ("/a/*/b", 3),
        ("/a?", 2),
        ("/\"a", 1),
        ("/a/", 3),
        ("/{}/?", 1),
    ] {
        assert_eq!(IndexPath::parse(text), Err(at), "{text}");
    }
}

proptest! {
    #[test]
    fn no_path_text_makes_a_parser_panic(text in "[/a\"'*?\\[\\]{},\\\\é~-]{0,12}") {
        let _ = IndexPath::parse(&text);
        let _ = PropertyPath::parse(&text);
        let body = value(&format!(r#"{{"id":"c","partitionKey":{{"paths":[{}]}}}}"#, Value::from(text.as_str()).to_text()));
        if let Ok(definition) = ContainerDefinition::create(&body) {
            prop_assert_eq!(ContainerDefinition::from_stored(&definition.to_stored()).unwrap(), definition);
        }
    }
}
