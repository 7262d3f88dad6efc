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
    fn every_body_says_that_unknown_members_are_refused_and_what_its_texts_may_be() {
        let document = document();
        let resolved = |schema: &Value| match schema.get("$ref").and_then(Value::as_str) {
            Some(place) => document.pointer(place.trim_start_matches('#')).unwrap().clone(),
            None => schema.clone(),
        };
        let mut n_bodies = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for described in methods.as_object().unwrap().values() {
                let Some(schema) = described.pointer("/requestBody/content/application~1json/schema") else {
                    continue;
                };
                let schema = resolved(schema);
                n_bodies += 1;
                assert_eq!(schema["additionalProperties"], false, "{path}");
                for (name, member) in schema["properties"].as_object().unwrap() {
                    let member = resolved(member);
                    let is_bounded = member.get("maxLength").is_some() && member.get("pattern").is_some();
                    assert!(member["type"] != "string" || is_bounded, "{path} {name}");
                }
            }
        }
        assert_eq!(n_bodies, 5);
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
