//! How far the index follows the policy.
//!
//! A changed policy is applied in bounded steps, each an entry of the log: first all entries made under the old policy go,
//! then the items get theirs one after the other, in the order of their keys. Writes in between keep up the entries of
//! items that have been reached and leave the others to the steps to come. Until all is done queries scan.

use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexProgress {
    /// The entries are complete.
    Ready,
    /// Entries of an earlier policy are being removed.
    Clearing,
    /// Items up to and including the one with this key have their entries.
    Building { reached: Bytes },
}

impl IndexProgress {
    /// Whether a change of the item with this key changes the index.
    pub fn covers(&self, item_key: &[u8]) -> bool {
        match self {
            IndexProgress::Ready => true,
            IndexProgress::Clearing => false,
            IndexProgress::Building { reached } => item_key <= reached.as_ref(),
        }
    }

    pub fn is_ready(&self) -> bool {
        *self == IndexProgress::Ready
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (phase, reached): (u8, &[u8]) = match self {
            IndexProgress::Ready => (0, &[]),
            IndexProgress::Clearing => (1, &[]),
            IndexProgress::Building { reached } => (2, reached),
        };
        out.push(phase);
        out.extend_from_slice(&(reached.len() as u16).to_le_bytes());
        out.extend_from_slice(reached);
    }

    /// Reads what [`IndexProgress::encode`] wrote, and what follows it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(IndexProgress, &[u8])> {
        let (&phase, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (reached, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        let progress = match phase {
            0 => IndexProgress::Ready,
            1 => IndexProgress::Clearing,
            2 => IndexProgress::Building {
                reached: Bytes::copy_from_slice(reached),
            },
            _ => return None,
        };
        Some((progress, rest))
    }
}
