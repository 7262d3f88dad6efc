//! Vector and full-text policies of a definition, and the indexes built on them.

use super::index_path::Reach;
use super::{indexing, read};
use crate::error::{Error, Result};
use crate::json::{Object, Value};

const DIMENSIONS_DEFAULT: i64 = 1536;
const DIMENSIONS_MAX: i64 = 4096;
const FLAT_DIMENSIONS_MAX: i64 = 505;
const QUANTIZATION_BYTES_MAX: i64 = 512;
const SHARD_PATHS_MAX: usize = 1;
const LANGUAGES: [&str; 7] = ["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT"];
/// The first is the default.
const DATA_TYPES: [&str; 4] = ["float32", "float16", "uint8", "int8"];
const DISTANCES: [&str; 3] = ["cosine", "euclidean", "dotproduct"];

/// The `vectorEmbeddingPolicy` in the service's form.
pub(super) fn normalise_embeddings(given: &Object) -> Result<Object> {
    let embeddings = read::objects(given, "vectorEmbeddings")?.ok_or_else(|| read::missing("vectorEmbeddings"))?;
    let embeddings = embeddings.into_iter().map(embedding).collect::<Result<Vec<_>>>()?;
    let mut policy = read::present(given);
    policy.insert("vectorEmbeddings", Value::Array(embeddings));
    Ok(policy)
}

fn embedding(given: &Object) -> Result<Value> {
    exact_path("Vector Embedding Policy", read::required_text(given, "path")?)?;
    let mut shown = read::present(given);
    let dimensions = read::integer(given, "dimensions")?.unwrap_or(DIMENSIONS_DEFAULT);
    if dimensions < 1 {
        return Err(Error::bad_request(format!(
            "The Vector Embedding Policy has Dimensions:{dimensions} which is not a positive integer."
        )));
    }
    if dimensions > DIMENSIONS_MAX {
        return Err(Error::bad_request(format!(
            "The Vector Embedding Policy has Dimensions:{dimensions} which is more than the maximum supported value {DIMENSIONS_MAX}."
        )));
    }
    shown.insert("dimensions", Value::from(dimensions));
    shown.insert("dataType", one_of(given, "dataType", &DATA_TYPES)?);
    shown.insert("distanceFunction", one_of(given, "distanceFunction", &DISTANCES)?);
    Ok(Value::Object(shown))
}

/// A member of an embedding in the service's casing; the first of `allowed` when it is absent.
fn one_of(given: &Object, name: &str, allowed: &[&str]) -> Result<Value> {
    let text = read::text(given, name)?.unwrap_or(allowed[0]);
    let known = read::choice(allowed, text).ok_or_else(|| {
        let name = capitalised(name);
        Error::bad_request(format!("The Vector Embedding Policy has an invalid {name}:{text}"))
    });
    known.map(Value::from)
}

fn capitalised(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// Whether a definition as a client sends it asks for vector indexes.
pub(super) fn has_vector_indexes(definition: &Object) -> bool {
    let policy = read::member(definition, "indexingPolicy");
    let indexes = policy.and_then(|policy| policy.get("vectorIndexes"));
    indexes
        .and_then(Value::as_array)
        .is_some_and(|indexes| !indexes.is_empty())
}

/// Checks the `vectorIndexes` of an indexing policy against the embeddings.
pub(super) fn normalise_vector_indexes(policy: &mut Object, embeddings: Option<&Object>) -> Result<()> {
    let Some(indexes) = read::objects(policy, "vectorIndexes")? else {
        return Ok(());
    };
    let indexes = indexes
        .into_iter()
        .map(|index| vector_index(index, embeddings))
        .collect::<Result<Vec<_>>>()?;
    policy.insert("vectorIndexes", Value::Array(indexes));
    Ok(())
}

fn vector_index(given: &Object, embeddings: Option<&Object>) -> Result<Value> {
    let path = read::required_text(given, "path")?;
    let kind = read::required_text(given, "type")?;
    let known = read::choice(&["flat", "quantizedFlat", "diskANN"], kind)
        .ok_or_else(|| Error::bad_request(format!("Vector Indexing Policy's Index Type::{kind} is invalid.")))?;
    let dimensions = dimensions(embeddings, path).ok_or_else(|| {
        Error::bad_request(format!(
            "The Vector Indexing Policy's path::{path} not matching in Embedding's path."
        ))
    })?;
    if known == "flat" && dimensions > FLAT_DIMENSIONS_MAX {
        return Err(Error::bad_request(format!(
            "Vector Indexing Policy's path::{path} has {dimensions} dimensions, an index of type flat allows {FLAT_DIMENSIONS_MAX}."
        )));
    }
    let mut shown = read::present(given);
    shown.insert("type", Value::from(known));
    read::normalise_choice(&mut shown, "quantizerType", &["product", "spherical"])?;
    Ok(Value::Object(shown))
}

/// What a definition that a client sends is held to besides: ranges, shard paths and languages. What is stored may be older than these.
pub(super) fn check_sent(definition: &Object) -> Result<()> {
    let embeddings = read::object(definition, "vectorEmbeddingPolicy")?;
    if let Some(policy) = read::object(definition, "indexingPolicy")? {
        for index in read::objects(policy, "vectorIndexes")?.unwrap_or_default() {
            let dimensions = dimensions(embeddings, read::required_text(index, "path")?);
            let bytes_max = dimensions.map_or(QUANTIZATION_BYTES_MAX, |dimensions| {
                dimensions.min(QUANTIZATION_BYTES_MAX)
            });
            parameter(index, "quantizationByteSize", 1, bytes_max)?;
            parameter(index, "indexingSearchListSize", 25, 500)?;
            check_shard_key(index)?;
        }
    }
    match read::object(definition, "fullTextPolicy")? {
        Some(policy) => check_languages(policy),
        None => Ok(()),
    }
}

fn check_languages(policy: &Object) -> Result<()> {
    let mut given = vec![read::text(policy, "defaultLanguage")?];
    for path in read::objects(policy, "fullTextPaths")?.unwrap_or_default() {
        given.push(read::text(path, "language")?);
    }
    match given
        .into_iter()
        .flatten()
        .find(|language| !LANGUAGES.contains(language))
    {
        Some(language) => Err(Error::bad_request(format!(
            "The Full Text Policy contains an unsupported language {language}. Supported are {}.",
            LANGUAGES.join(", ")
        ))),
        None => Ok(()),
    }
}

fn parameter(given: &Object, name: &str, min: i64, max: i64) -> Result<()> {
    match read::integer(given, name)? {
        Some(value) if !(min..=max).contains(&value) => {
            let name = capitalised(name);
            Err(Error::bad_request(format!(
                "The Vector Indexing Policy parameter {name} value :: {value} is out of range. \
                 The allowed range is between {min} and {max}."
            )))
        }
        _ => Ok(()),
    }
}

/// The paths by which a vector index is cut into smaller ones.
fn check_shard_key(given: &Object) -> Result<()> {
    let paths = read::list(given, "vectorIndexShardKey")?.unwrap_or_default();
    for path in paths {
        let valid = path.as_str().and_then(|path| indexing::parse(path).ok());
        if valid.is_none_or(|path| path.reach != Reach::Exact) {
            let path = path.as_str().map_or_else(|| path.to_text(), str::to_owned);
            return Err(Error::bad_request(format!(
                "The Vector Indexing Policy has an invalid Shard Path: {path}."
            )));
        }
    }
    match paths.len() {
        n if n > SHARD_PATHS_MAX => Err(Error::bad_request(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {n} exceeds the maximum: {SHARD_PATHS_MAX}."
        ))),
        _ => Ok(()),
    }
}

fn dimensions(embeddings: Option<&Object>, path: &str) -> Option<i64> {
    let embeddings = embeddings?.get("vectorEmbeddings")?.as_array()?;
    let embedding = embeddings
        .iter()
        .find(|embedding| embedding.get("path").and_then(Value::as_str) == Some(path))?;
    embedding.get("dimensions")?.as_number()?.as_i64()
}

/// Checks the shape of a `fullTextPolicy`, which is kept as it came.
pub(super) fn check_full_text(policy: &Object) -> Result<()> {
    read::text(policy, "defaultLanguage")?;
    for path in read::objects(policy, "fullTextPaths")?.unwrap_or_default() {
        exact_path("Full Text Policy", read::required_text(path, "path")?)?;
        read::text(path, "language")?;
    }
    Ok(())
}

/// Checks the `fullTextIndexes` of an indexing policy against the full-text policy.
pub(super) fn check_full_text_indexes(policy: &Object, full_text: Option<&Object>) -> Result<()> {
    let paths = full_text
        .map(|policy| read::objects(policy, "fullTextPaths"))
        .transpose()?
        .flatten()
        .unwrap_or_default();
    for (index, given) in read::objects(policy, "fullTextIndexes")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let path = read::text(given, "path")?.ok_or_else(|| {
            Error::bad_request(format!(
                "Missing path in full-text index specification at index ({index})"
            ))
        })?;
        if indexing::parse(path).is_ok_and(|path| path.reach == Reach::Exact) {
            if !paths
                .iter()
                .any(|known| known.get("path").and_then(Value::as_str) == Some(path))
            {
                return Err(Error::bad_request(format!(
                    "The path of the Full Text Index {path} does not match the path specified in the Full Text Policy"
                )));
            }
        } else {
            return Err(Error::bad_request(format!(
                "Full-text index specification at index ({index}) contains invalid path '{path}'"
            )));
        }
    }
    Ok(())
}

fn exact_path(policy: &str, path: &str) -> Result<()> {
    match indexing::parse(path) {
        Ok(parsed) if parsed.reach == Reach::Exact => Ok(()),
        _ => Err(Error::bad_request(format!(
            "The {policy} contains an invalid Path: {path}"
        ))),
    }
}
