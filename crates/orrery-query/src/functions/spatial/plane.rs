//! The plane.

use super::geometry::{Point, Ring};
use super::surface::Surface;

pub(super) struct Plane;

impl Surface for Plane {
    fn distance(&self, a: Point, b: Point) -> f64 {
        (a.x - b.x).hypot(a.y - b.y)
    }

    fn distance_to_edge(&self, point: Point, start: Point, end: Point) -> f64 {
        let (dx, dy) = (end.x - start.x, end.y - start.y);
        let length_squared = dx * dx + dy * dy;
        if length_squared == 0.0 {
            return self.distance(point, start);
        }
        let along = ((point.x - start.x) * dx + (point.y - start.y) * dy) / length_squared;
        let along = along.clamp(0.0, 1.0);
        self.distance(
            point,
            Point {
                x: start.x + along * dx,
                y: start.y + along * dy,
            },
        )
    }

    fn side(&self, start: Point, end: Point, point: Point) -> f64 {
        (end.x - start.x) * (point.y - start.y) - (end.y - start.y) * (point.x - start.x)
    }

    /// The plane has an outside, so the direction of a ring does not matter.
    fn is_left_of(&self, ring: &Ring, point: Point) -> bool {
        let crosses = |pair: &&[Point]| {
            let (a, b) = (pair[0], pair[1]);
            (a.y > point.y) != (b.y > point.y) && point.x < (b.x - a.x) * (point.y - a.y) / (b.y - a.y) + a.x
        };
        ring.windows(2).filter(crosses).count() % 2 == 1
    }

    fn area(&self, ring: &Ring) -> f64 {
        let twice: f64 = ring
            .windows(2)
            .map(|pair| pair[0].x * pair[1].y - pair[1].x * pair[0].y)
            .sum();
        twice.abs() / 2.0
    }

    fn left_area(&self, ring: &Ring) -> f64 {
        self.area(ring)
    }

    fn tolerance(&self) -> f64 {
        1e-12
    }
}
