//! A seam for pages served beside the API: whoever builds the binary brings them.

/// One file.
#[derive(Clone, Debug)]
pub struct Asset {
    pub content_type: &'static str,
    pub bytes: bytes::Bytes,
    /// Its name changes with its content, so browsers may keep it.
    pub is_immutable: bool,
}

/// Files by path; a path of the API never gets here.
pub trait Assets: Send + Sync + 'static {
    /// `path` begins with a slash.
    fn get(&self, path: &str) -> Option<Asset>;
}
