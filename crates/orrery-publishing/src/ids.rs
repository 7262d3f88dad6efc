//! Ids that are the same for the same thing, so that a retried write is the same write.
//!
//! An id is a hash of what it names, in letters that may stand in a document id and in a path. Only an article has an id that
//! is drawn: its account's tag, a dot and a ULID, made once before the first attempt. Invariant: nothing here reads a clock
//! or chance; both come in as values.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{Context, SHA256};

/// Letters of a ULID: Crockford's base 32.
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Letters a ULID has.
const ULID_LENGTH: usize = 26;
/// Bytes of a hash that go into an id: collisions stay out of reach for billions of documents.
const HASH_BYTES: usize = 18;

/// Hash of what a document is about. Lengths are part of it, so that `("ab", "c")` and `("a", "bc")` differ.
fn hash(kind: &str, parts: &[&str]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in std::iter::once(&kind).chain(parts) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

fn hash_id(kind: &str, parts: &[&str]) -> String {
    URL_SAFE_NO_PAD.encode(&hash(kind, parts)[..HASH_BYTES])
}

/// Could this be an id that was made by hashing?
pub fn is_hash_id(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    text.len() == HASH_BYTES.div_ceil(3) * 4 && text.bytes().all(is_letter)
}

/// One notification per user and article, whoever writes it and however often.
pub fn notification_id(user: &str, article: &str) -> String {
    hash_id("notification", &[user, article])
}

/// One subscription per user and filter in each account.
pub fn subscription_id(user: &str, filter: &str) -> String {
    hash_id("subscription", &[user, filter])
}

/// The entry in a user's own list that stands for a subscription.
pub fn listing_id(user: &str, filter: &str) -> String {
    hash_id("listing", &[user, filter])
}

/// One review per user, article and account. The account is part of it: sums over accounts then count every review once.
pub fn review_id(user: &str, article: &str, account: &str) -> String {
    hash_id("review", &[user, article, account])
}

/// What an account has counted of one review.
pub fn counted_id(review: &str) -> String {
    hash_id("counted", &[review])
}

/// What a role remembers about an article.
pub fn progress_id(role: &str, article: &str) -> String {
    hash_id("progress", &[role, article])
}

/// A message that waits for another account.
pub fn message_id(target: &str, about: &[&str]) -> String {
    let mut parts = vec![target];
    parts.extend_from_slice(about);
    hash_id("message", &parts)
}

/// The text of an article, to tell it from another one.
pub fn text_id(category: &str, title: &str, body: &str, tags: &[String]) -> String {
    let mut parts = vec![category, title, body];
    parts.extend(tags.iter().map(String::as_str));
    hash_id("text", &parts)
}

/// A short mark of a subject, for tokens that must not be used with another one.
pub fn subject_mark(kind: &str, subject: &str) -> String {
    URL_SAFE_NO_PAD.encode(&hash(kind, &[subject])[..9])
}

/// Which bucket of a large filter holds a user.
pub fn bucket(user: &str, n_buckets: u32) -> u32 {
    let bytes = hash("bucket", &[user]);
    let number = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    number % n_buckets.max(1)
}

/// A new article's id: the tag lets readers go straight to the account that owns it.
pub fn article_id(tag: &str, now_ms: u64, chance: [u8; 10]) -> String {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&chance);
    format!("{tag}.{}", crockford(u128::from_be_bytes(bytes)))
}

/// The id of an article whose author named the attempt: the same name gives the same article, however often it is tried.
pub fn named_article_id(tag: &str, author: &str, name: &str) -> String {
    let bytes = hash("article", &[author, name]);
    let number = u128::from_be_bytes(bytes[..16].try_into().expect("16 of 32 bytes"));
    format!("{tag}.{}", crockford(number))
}

fn crockford(number: u128) -> String {
    let letter = |place: usize| CROCKFORD[(number >> (5 * place)) as usize & 31] as char;
    (0..ULID_LENGTH).rev().map(letter).collect()
}

/// The tag in an article's id, if it has one: ids of other makers have none.
pub fn account_tag(article: &str) -> Option<&str> {
    let (tag, ulid) = article.split_once('.')?;
    let is_ulid = ulid.len() == ULID_LENGTH && ulid.bytes().all(|byte| CROCKFORD.contains(&byte));
    (is_ulid && is_tag(tag)).then_some(tag)
}

/// A tag is what may stand before the dot: a short word of lower-case letters, digits and dashes.
pub fn is_tag(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=32).contains(&text.len()) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_article_id_tells_its_account_and_sorts_by_time() {
        let early = article_id("usa", 1_700_000_000_000, [7; 10]);
        let late = article_id("usa", 1_700_000_000_001, [0; 10]);
        assert_eq!(early, "usa.01HF7YAT000W3GE1R70W3GE1R7");
        assert_eq!(account_tag(&early), Some("usa"));
        assert!(early < late);
        for foreign in [
            "article-1",
            "usa.short",
            ".01HF7YAT00071R3GE1R70W3GE1",
            "USA.01HF7YAT00071R3GE1R70W3GE1",
            "",
        ] {
            assert_eq!(account_tag(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_same_attempt_gives_the_same_article_and_another_author_another() {
        let id = named_article_id("asia", "ann", "draft 7");
        assert_eq!(id, named_article_id("asia", "ann", "draft 7"));
        assert_ne!(id, named_article_id("asia", "bob", "draft 7"));
        assert_eq!(account_tag(&id), Some("asia"));
    }

    #[test]
    fn parts_of_an_id_cannot_run_into_each_other() {
        assert_ne!(notification_id("ab", "c"), notification_id("a", "bc"));
        assert_ne!(notification_id("a", "b"), subscription_id("a", "b"));
        assert_ne!(review_id("u", "a", "usa"), review_id("u", "a", "europe"));
    }

    proptest! {
        #[test]
        fn ids_may_stand_in_a_document_and_in_a_path(user in ".*", article in ".*") {
            let id = notification_id(&user, &article);
            prop_assert_eq!(id.len(), 24);
            prop_assert!(is_hash_id(&id) && !is_hash_id(&id[1..]));
            prop_assert_eq!(&id, &notification_id(&user, &article));
        }

        #[test]
        fn users_spread_over_all_buckets(n_buckets in 1u32..32) {
            let mut counts = vec![0; n_buckets as usize];
            for user in 0..640 {
                counts[bucket(&format!("user{user}"), n_buckets) as usize] += 1;
            }
            prop_assert!(counts.iter().all(|count| *count > 0));
        }
    }
}
