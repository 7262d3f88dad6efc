//! The text an account key signs: verb, resource type, resource link and date, each followed by a line feed.

use orrery_model::Result;

use super::{Credentials, unauthorized};

/// What a request is signed for. The link is percent-decoded, without slashes around it; resource ids in lower case.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    pub verb: &'a str,
    pub resource_type: &'a str,
    pub link: &'a str,
}

/// The string to sign.
pub fn payload(signed: Signed<'_>, credentials: Credentials<'_>) -> Result<String> {
    let (x_ms_date, date) = match (credentials.x_ms_date, credentials.date) {
        (Some(date), _) => (date, ""),
        (None, Some(date)) => ("", date),
        (None, None) => {
            return Err(unauthorized(
                "Neither the header x-ms-date nor the header date is present.",
            ));
        }
    };
    let mut text = String::with_capacity(64 + signed.link.len());
    push_lower(&mut text, signed.verb);
    push_lower(&mut text, signed.resource_type);
    text.push_str(signed.link);
    text.push('\n');
    push_lower(&mut text, x_ms_date);
    push_lower(&mut text, date);
    Ok(text)
}

fn push_lower(text: &mut String, part: &str) {
    let start = text.len();
    text.push_str(part);
    text[start..].make_ascii_lowercase();
    text.push('\n');
}
