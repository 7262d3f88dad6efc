//! Places in a query's text.

/// A half-open range of bytes of the query text.
///
/// All spans are equal to each other: where a piece of syntax stands takes no part in what it says, so trees can be
/// compared whatever their layout was.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub fn new(start: usize, end: usize) -> Span {
        Span { start, end }
    }

    /// From the start of this to the end of `last`.
    pub fn to(self, last: Span) -> Span {
        Span {
            start: self.start,
            end: last.end,
        }
    }
}

impl PartialEq for Span {
    fn eq(&self, _: &Span) -> bool {
        true
    }
}
