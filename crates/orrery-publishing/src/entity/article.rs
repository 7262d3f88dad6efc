//! An article: written in its author's account, read from every region, edited and retracted where it is owned.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Entity, Ordered, USER_BYTES_MAX, check_user};
use crate::filter::{Filter, NAME_BYTES_MAX};
use crate::ids;

const TITLE_BYTES_MAX: usize = 1024;
/// Well below the service's 2 MB per item, with room for the rest of the document.
const BODY_BYTES_MAX: usize = 512 << 10;
const TAGS_MAX: usize = 16;

/// What an author or a reader gave that cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntityError {
    #[error("a user id has 1 to {USER_BYTES_MAX} bytes without control characters, `#` and blanks at its ends")]
    User,
    #[error("a category has 1 to {NAME_BYTES_MAX} bytes without control characters and `#`")]
    Category,
    #[error("an article has at most {TAGS_MAX} tags of 1 to {NAME_BYTES_MAX} bytes without control characters and `#`")]
    Tags,
    #[error("a title has 1 to {TITLE_BYTES_MAX} bytes without control characters")]
    Title,
    #[error("a body has at most {BODY_BYTES_MAX} bytes without control characters besides line ends and tabs")]
    Body,
    #[error("a rating is a whole number from 1 to 5")]
    Rating,
    #[error(
        "a review has at most {} bytes without control characters besides line ends and tabs",
        super::review::TEXT_BYTES_MAX
    )]
    ReviewText,
    #[error(
        "an article's id has 1 to 255 bytes without control characters, slashes, `?` and `#`, and is not `.` or `..`"
    )]
    ArticleId,
}

/// What an author writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Draft {
    pub category: String,
    #[serde(default)]
    pub tags: Vec<String>,
    pub title: String,
    #[serde(default)]
    pub body: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArticleState {
    Published,
    /// Deleted softly, so that the change feed tells.
    Retracted,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Article {
    #[serde(rename = "id")]
    pub id: String,
    pub home_account: String,
    /// Milliseconds since 1970. The service's own time has whole seconds only.
    pub created_at: u64,
    pub author: String,
    pub category: String,
    pub tags: Vec<String>,
    pub title: String,
    /// Absent in lists.
    #[serde(default)]
    pub body: String,
    pub state: ArticleState,
    /// 1 when published, one more with every change.
    pub revision: u64,
    pub changed_at: u64,
    /// Stands for the text it was published with, if its author named the attempt: edits do not make it another attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_text: Option<String>,
    #[serde(rename = "_etag", default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

impl Article {
    pub fn new(id: String, account: &str, author: &str, draft: Draft, now_ms: u64) -> Result<Article, EntityError> {
        check_user(author)?;
        check_article_id(&id)?;
        let draft = draft.checked()?;
        Ok(Article {
            id,
            home_account: account.to_owned(),
            created_at: now_ms,
            author: author.to_owned(),
            category: draft.category,
            tags: draft.tags,
            title: draft.title,
            body: draft.body,
            state: ArticleState::Published,
            revision: 1,
            changed_at: now_ms,
            first_text: None,
            etag: None,
        })
    }

    /// The same article, which remembers its text whatever it is edited to.
    pub fn with_first_text(self) -> Article {
        Article {
            first_text: Some(ids::text_id(&self.category, &self.title, &self.body, &self.tags)),
            ..self
        }
    }

    /// The next version with another text.
    pub fn edited(&self, draft: Draft, now_ms: u64) -> Result<Article, EntityError> {
        let draft = draft.checked()?;
        Ok(Article {
            category: draft.category,
            tags: draft.tags,
            title: draft.title,
            body: draft.body,
            revision: self.revision + 1,
            changed_at: now_ms,
            ..self.clone()
        })
    }

    /// The last version: the text is gone, the id stays.
    pub fn retracted(&self, now_ms: u64) -> Article {
        Article {
            body: String::new(),
            state: ArticleState::Retracted,
            revision: self.revision + 1,
            changed_at: now_ms,
            ..self.clone()
        }
    }

    pub fn is_retracted(&self) -> bool {
        self.state == ArticleState::Retracted
    }

    /// The filters it matches, in the order in which notifications name them. Names nobody can subscribe to match nothing.
    pub fn filters(&self) -> Vec<Filter> {
        let author = Filter::parse(&format!("author:{}", self.author));
        let category = Filter::parse(&format!("category:{}", self.category));
        let tags = self.tags.iter().map(|tag| Filter::parse(&format!("tag:{tag}")));
        let mut filters: Vec<Filter> = [author, category].into_iter().chain(tags).flatten().collect();
        filters.sort();
        filters.dedup();
        filters
    }

    /// The same article, whatever the server added: a create that failed because this is there already has succeeded.
    pub fn is_same(&self, other: &Article) -> bool {
        let text = |article: &Article| {
            let Article {
                author,
                category,
                tags,
                title,
                body,
                ..
            } = article.clone();
            (author, category, tags, title, body)
        };
        self.id == other.id && text(self) == text(other)
    }
}

impl Draft {
    /// As it is stored, or why it cannot be.
    pub(crate) fn checked(mut self) -> Result<Draft, EntityError> {
        let named =
            |kind: &str, name: &str| Filter::parse(&format!("{kind}:{name}")).map(|filter| filter.name().to_owned());
        self.category = named("category", &self.category).map_err(|_| EntityError::Category)?;
        if self.tags.len() > TAGS_MAX {
            return Err(EntityError::Tags);
        }
        let mut tags = Vec::new();
        for tag in &self.tags {
            let tag = named("tag", tag).map_err(|_| EntityError::Tags)?;
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        self.tags = tags;
        let is_titled = !self.title.trim().is_empty() && !self.title.contains(char::is_control);
        if !is_titled || self.title.len() > TITLE_BYTES_MAX {
            return Err(EntityError::Title);
        }
        if self.body.len() > BODY_BYTES_MAX || !is_text(&self.body) {
            return Err(EntityError::Body);
        }
        Ok(self)
    }
}

/// What people write in paragraphs: no characters that only terminals and attackers use.
pub(super) fn is_text(text: &str) -> bool {
    !text.contains(|char: char| char.is_control() && !matches!(char, '\n' | '\r' | '\t'))
}

/// Checks an article's id as it comes from outside: it may be of another maker, but must be able to stand in a path.
pub(crate) fn check_article_id(id: &str) -> Result<(), EntityError> {
    let is_bad = |char: char| char.is_control() || matches!(char, '/' | '\\' | '?' | '#');
    // Clients take the last two for other places in the path.
    if id.is_empty() || id.len() > 255 || id.contains(is_bad) || id == "." || id == ".." {
        return Err(EntityError::ArticleId);
    }
    Ok(())
}

impl Entity for Article {
    const TYPE: &'static str = "Article";

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> String {
        self.id.clone()
    }

    fn computed(&self) -> Vec<(&'static str, Value)> {
        vec![("SortKey", self.sort_key().into())]
    }
}

impl Ordered for Article {
    fn ordered_at(&self) -> u64 {
        self.created_at
    }

    fn created_at(&self) -> u64 {
        self.created_at
    }
}
