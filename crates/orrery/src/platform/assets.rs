//! The web application, embedded in the binary as `make web` built it.

use bytes::Bytes;
use orrery_platform::{Asset, Assets};

#[derive(rust_embed::RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Files;

/// Shown where the application was not built.
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Orrery</title>\
    <p>This binary was built without the web application. Build that first (<code>make web</code>), then the binary; the \
    API works as it is (<a href=\"openapi.json\">openapi.json</a>).";

/// Files of the application by path.
#[derive(Debug)]
pub struct WebApplication;

impl Assets for WebApplication {
    fn get(&self, path: &str) -> Option<Asset> {
        let name = match path.trim_start_matches('/') {
            "" => "index.html",
            name => name,
        };
        match Files::get(name) {
            Some(file) => Some(Asset {
                content_type: content_type(name),
                bytes: Bytes::from(file.data.into_owned()),
                // Vite names what it puts there after its content.
                is_immutable: name.starts_with("assets/"),
            }),
            None => (name == "index.html").then(|| Asset {
                content_type: content_type(name),
                bytes: Bytes::from_static(NOT_BUILT.as_bytes()),
                is_immutable: false,
            }),
        }
    }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("json" | "webmanifest") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_a_page_and_unknown_paths_are_nothing() {
        let page = WebApplication.get("/").unwrap();
        assert_eq!(page.content_type, "text/html; charset=utf-8");
        assert!(!page.is_immutable && page.bytes.starts_with(b"<!doctype html>"));
        assert!(WebApplication.get("/nowhere").is_none());
        assert!(WebApplication.get("/../Cargo.toml").is_none());
    }
}
