//! What the names of a query are bound to while it runs: a chain of frames on the stack, innermost first.

use orrery_model::Value;

/// One binding and those around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'f> {
    pub bound: Bound<'f>,
    pub up: Option<&'f Frame<'f>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound<'f> {
    Value(Option<&'f Value>),
    Group(&'f GroupRow),
}

/// A finished group.
#[derive(Debug)]
pub(crate) struct GroupRow {
    pub keys: Vec<Option<Value>>,
    pub aggregates: Vec<Option<Value>>,
}

impl<'f> Frame<'f> {
    /// The outermost frame: the item, or nothing.
    pub fn root(item: Option<&'f Value>) -> Frame<'f> {
        Frame {
            bound: Bound::Value(item),
            up: None,
        }
    }

    pub fn inner(&'f self, value: Option<&'f Value>) -> Frame<'f> {
        Frame {
            bound: Bound::Value(value),
            up: Some(self),
        }
    }

    fn ancestor(&'f self, up: usize) -> &'f Frame<'f> {
        (0..up).fold(self, |frame, _| frame.up.expect("planning counted the frames"))
    }

    /// What the outermost frame holds.
    pub fn item(&self) -> Option<&'f Value> {
        let mut frame = self;
        while let Some(outer) = frame.up {
            frame = outer;
        }
        match frame.bound {
            Bound::Value(value) => value,
            Bound::Group(_) => None,
        }
    }

    pub fn value(&'f self, up: usize) -> Option<&'f Value> {
        match self.ancestor(up).bound {
            Bound::Value(value) => value,
            Bound::Group(_) => None,
        }
    }

    pub fn group(&'f self, up: usize) -> Option<&'f GroupRow> {
        match self.ancestor(up).bound {
            Bound::Group(group) => Some(group),
            Bound::Value(_) => None,
        }
    }
}
