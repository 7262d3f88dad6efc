//! Sets of partition keys that a filter leaves possible.

use orrery_model::key::KeyComponent;

/// What a filter says about the partition key: nothing, or one of a list of keys. A key whose component is `None` is
/// free in that component.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Keys {
    All,
    Some(Vec<Vec<Option<KeyComponent>>>),
}

/// More keys than this are not worth telling apart.
const KEYS_MAX: usize = 20_000;

impl Keys {
    pub fn none() -> Keys {
        Keys::Some(Vec::new())
    }

    /// The keys whose component at `index` is `component`.
    pub fn point(n_components: usize, index: usize, component: KeyComponent) -> Keys {
        let mut key = vec![None; n_components];
        key[index] = Some(component);
        Keys::Some(vec![key])
    }

    pub fn union(self, other: Keys) -> Keys {
        match (self, other) {
            (Keys::Some(mut a), Keys::Some(b)) if a.len() + b.len() <= KEYS_MAX => {
                a.extend(b);
                Keys::Some(a)
            }
            _ => Keys::All,
        }
    }

    /// When both sides are long, the shorter one alone is also right, only less precise.
    pub fn intersection(self, other: Keys) -> Keys {
        match (self, other) {
            (Keys::All, keys) | (keys, Keys::All) => keys,
            (Keys::Some(a), Keys::Some(b)) if a.len().saturating_mul(b.len()) <= KEYS_MAX => {
                Keys::Some(a.iter().flat_map(|a| b.iter().filter_map(|b| common(a, b))).collect())
            }
            (Keys::Some(a), Keys::Some(b)) => Keys::Some(if a.len() <= b.len() { a } else { b }),
        }
    }
}

fn common(a: &[Option<KeyComponent>], b: &[Option<KeyComponent>]) -> Option<Vec<Option<KeyComponent>>> {
    a.iter()
        .zip(b)
        .map(|(a, b)| match (a, b) {
            (Some(a), Some(b)) => (a == b).then(|| Some(a.clone())),
            (Some(one), None) | (None, Some(one)) => Some(Some(one.clone())),
            (None, None) => Some(None),
        })
        .collect()
}
