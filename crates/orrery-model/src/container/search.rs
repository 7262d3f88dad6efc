//! Vector and full-text policies of a definition, and the indexes built on them.

use super::index_path::Reach;
use super::{indexing, read};
use crate::error::{Error, Result};
use crate::json::{Object, Value};

const DIMENSIONS_DEFAULT: i64 = 1536;
const DIMENSIONS_MAX: i64 = 4096;
const FLAT_DIMENSIONS_MAX: i64 = 505;

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
            "Vector Embedding Policy has invalid Dimensions:{dimensions}, it should be positive integer"
        )));
    }
    if dimensions > DIMENSIONS_MAX {
        return Err(Error::bad_request(format!(
            "Vector Embedding Policy has invalid Dimensions:{dimensions}, the maximum is {DIMENSIONS_MAX}"
        )));
    }
    shown.insert("dimensions", Value::from(dimensions));
    for (name, default) in [("dataType", "float32"), ("distanceFunction", "cosine")] {
        if !shown.contains(name) {
            shown.insert(name, Value::from(default));
        }
    }
    read::normalise_choice(&mut shown, "dataType", &["float32", "float16", "uint8", "int8"])?;
    read::normalise_choice(&mut shown, "distanceFunction", &["cosine", "euclidean", "dotproduct"])?;
    Ok(Value::Object(shown))
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
            "Vector Indexing Policy's path::{path} not matching in Embedding's path."
        ))
    })?;
    if known == "flat" && dimensions > FLAT_DIMENSIONS_MAX {
        return Err(Error::bad_request(format!(
            "Vector Indexing Policy's path::{path} has {dimensions} dimensions, an index of type flat allows {FLAT_DIMENSIONS_MAX}."
        )));
    }
    parameter(given, "quantizationByteSize", 1, 512)?;
    parameter(given, "indexingSearchListSize", 10, 500)?;
    let mut shown = read::present(given);
    shown.insert("type", Value::from(known));
    read::normalise_choice(&mut shown, "quantizerType", &["product", "spherical"])?;
    Ok(Value::Object(shown))
}

fn parameter(given: &Object, name: &str, min: i64, max: i64) -> Result<()> {
    match read::integer(given, name)? {
        Some(value) if !(min..=max).contains(&value) => {
            let (first, rest) = name.split_at(1);
            Err(Error::bad_request(format!(
                "Vector Indexing Policy parameter {}{rest} value :: {value} is out of range. \
                 The allowed range is between {min} and {max}.",
                first.to_ascii_uppercase()
            )))
        }
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
        _ => Err(Error::bad_request(format!("{policy} contains invalid Path: {path}"))),
    }
}
