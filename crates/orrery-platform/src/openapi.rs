//! The API as an OpenAPI document, written by hand and held to the routes by a test.

/// OpenAPI 3.1.
pub const DOCUMENT: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    #[test]
    fn the_document_lists_exactly_the_routes_there_are() {
        let document = document();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                let names: Vec<&str> = path
                    .split('/')
                    .map(|part| if part.starts_with('{') { "{}" } else { part })
                    .collect();
                described.insert((method.clone(), names.join("/")));
            }
        }
        let routes: BTreeSet<_> = crate::route::all()
            .map(|(method, path)| (method, path.to_owned()))
            .collect();
        assert_eq!(described, routes);
    }

    #[test]
    fn every_route_says_how_it_refuses_strangers_the_hasty_and_ids_that_are_none() {
        let document = document();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let is_always_answered = ["/healthz", "/readyz", "/metrics"].contains(&path.as_str());
            for (method, described) in methods.as_object().unwrap() {
                let says = |status: &str| described["responses"].get(status).is_some();
                assert!(is_always_answered || (says("401") && says("429")), "{method} {path}");
                assert!(!path.contains("/articles/{id}") || says("400"), "{method} {path}");
                assert!(described.get("requestBody").is_none() || says("413"), "{method} {path}");
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    members.values().for_each(|member| references(member, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let (document, mut found) = (document(), Vec::new());
        references(&document, &mut found);
        assert!(found.len() > 20);
        for reference in found {
            assert!(
                document.pointer(reference.trim_start_matches('#')).is_some(),
                "{reference}"
            );
        }
    }
}
