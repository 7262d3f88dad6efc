//! The frames an expression will see at run time, as far as planning knows them.

use std::mem::Discriminant;
use std::rc::Rc;

use orrery_model::limits::NESTING_LEVELS_MAX;

use super::expr::{Expr, Grouping, Step};
use crate::parse::ast::ExprKind;

/// One frame.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    /// A value, named unless it is the item itself.
    Value { name: Option<String>, place: Place },
    /// A group, which stands in for the sources that were grouped.
    Group(Box<GroupScope>),
}

#[derive(Clone, Debug)]
pub(super) struct GroupScope {
    /// The frames that the keys and the aggregates' arguments see on top of the outer ones.
    pub sources: Vec<Slot>,
    pub grouping: Grouping,
    /// What kinds of expressions the keys are, to find out quickly what cannot be one.
    pub key_kinds: Vec<Discriminant<ExprKind>>,
}

/// Where a bound value comes from, which decides whether ORDER BY can use it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// A path of the item; empty for the item itself.
    Document(Vec<Step>),
    /// Somewhere below an element of an array.
    Element,
    Constructed(Constructed),
    Computed,
}

/// Made by an object constructor, member by member. Names that stand for such a value share what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constructed {
    members: Rc<[(String, Place)]>,
    n_levels: usize,
}

/// Objects within objects whose members are still told apart.
const CONSTRUCTED_LEVELS_MAX: usize = 64;

impl Place {
    /// The place of an object that is made of these members.
    pub fn constructed(members: impl Iterator<Item = (String, Place)>) -> Place {
        let members: Rc<[(String, Place)]> = members.collect();
        let n_levels = |place: &Place| match place {
            Place::Constructed(inner) => inner.n_levels,
            Place::Document(_) | Place::Element | Place::Computed => 0,
        };
        let n_levels = 1 + members.iter().map(|(_, place)| n_levels(place)).max().unwrap_or(0);
        match n_levels <= CONSTRUCTED_LEVELS_MAX {
            true => Place::Constructed(Constructed { members, n_levels }),
            false => Place::Computed,
        }
    }

    /// Whether this is a path of the item, through elements of arrays or not.
    pub fn is_path(&self) -> bool {
        matches!(self, Place::Document(_) | Place::Element)
    }

    /// Where `steps` lead from here.
    pub fn follow(&self, steps: &[Step]) -> Place {
        match self {
            Place::Document(path) => {
                // One step more than any item has levels: however the path goes on, nothing is there.
                let n_steps = (NESTING_LEVELS_MAX + 1).saturating_sub(path.len()).min(steps.len());
                Place::Document([path.as_slice(), &steps[..n_steps]].concat())
            }
            Place::Element => Place::Element,
            Place::Computed => Place::Computed,
            Place::Constructed(constructed) => match steps.split_first() {
                None => self.clone(),
                Some((Step::Name(name), rest)) => {
                    let member = constructed.members.iter().find(|(member, _)| member == name);
                    member.map_or(Place::Computed, |(_, place)| place.follow(rest))
                }
                Some(_) => Place::Computed,
            },
        }
    }
}

/// What a name stands for.
pub(super) enum Resolved {
    /// The value this many frames up.
    Value { up: usize, place: Place },
    /// A source that has been grouped away: the group's distance, and the source's place above the group's outer frames.
    Grouped { up: usize, source: usize },
}

/// The frames, outermost first.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub slots: Vec<Slot>,
}

impl Scope {
    pub fn resolve(&self, wanted: &str) -> Option<Resolved> {
        for (up, slot) in self.slots.iter().rev().enumerate() {
            match slot {
                Slot::Value { name, place } if name.as_deref() == Some(wanted) => {
                    return Some(Resolved::Value {
                        up,
                        place: place.clone(),
                    });
                }
                Slot::Value { .. } => {}
                Slot::Group(group) => {
                    let named =
                        |slot: &Slot| matches!(slot, Slot::Value { name, .. } if name.as_deref() == Some(wanted));
                    if let Some(source) = group.sources.iter().rposition(named) {
                        return Some(Resolved::Grouped { up, source });
                    }
                }
            }
        }
        None
    }

    /// Whether a source that has been grouped away is a path of the item.
    pub fn is_path(&self, up: usize, source: usize) -> bool {
        match &self.slots[self.slots.len() - 1 - up] {
            Slot::Group(group) => matches!(&group.sources[source], Slot::Value { place, .. } if place.is_path()),
            Slot::Value { .. } => false,
        }
    }

    /// The distance of the outermost frame, which holds the item.
    pub fn root_up(&self) -> usize {
        self.slots.len() - 1
    }
}

impl GroupScope {
    /// The key that is a path beginning of `steps` from `source`: its index and the steps that remain.
    pub fn key_for_path<'s>(&self, source: usize, steps: &'s [Step]) -> Option<(usize, &'s [Step])> {
        let up = self.sources.len() - 1 - source;
        self.grouping
            .keys
            .iter()
            .enumerate()
            .find_map(|(index, key)| match key {
                Expr::Path {
                    up: key_up,
                    steps: key_steps,
                } if *key_up == up => steps.strip_prefix(key_steps.as_slice()).map(|rest| (index, rest)),
                _ => None,
            })
    }
}
