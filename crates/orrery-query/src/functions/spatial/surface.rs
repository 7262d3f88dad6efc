//! What relations between geometries need to know about the surface they lie on.

use super::geometry::{Point, Ring};

pub(super) trait Surface {
    fn distance(&self, a: Point, b: Point) -> f64;

    /// The distance from a point to the edge between two others.
    fn distance_to_edge(&self, point: Point, start: Point, end: Point) -> f64;

    /// Positive when `point` lies left of the way from `start` to `end`, negative when right of it.
    fn side(&self, start: Point, end: Point, point: Point) -> f64;

    /// Whether the point lies left of the ring all around it. Points on the ring itself are not asked for.
    fn is_left_of(&self, ring: &Ring, point: Point) -> bool;

    /// The area that the ring encloses, on the smaller side.
    fn area(&self, ring: &Ring) -> f64;

    /// The area left of the ring, which for a ring the wrong way round is nearly everything.
    fn left_area(&self, ring: &Ring) -> f64;

    /// Closer than this is touching.
    fn tolerance(&self) -> f64;
}
