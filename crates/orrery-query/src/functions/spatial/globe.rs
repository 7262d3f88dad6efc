//! The WGS-84 ellipsoid.

use std::sync::LazyLock;

use geographiclib_rs::{DirectGeodesic, Geodesic, InverseGeodesic, PolygonArea, Winding};

use super::geometry::{Point, Ring};
use super::surface::Surface;

pub(super) struct Globe;

static ELLIPSOID: LazyLock<Geodesic> = LazyLock::new(Geodesic::wgs84);

/// The radius of a sphere about as large, for the steps of an iteration that is exact at its end.
const RADIUS_METRES: f64 = 6_371_008.8;
/// Seen from nearer than this a ring's direction is plain; from its antipode it is not.
const FAR_METRES: f64 = 5_000_000.0;
/// A circle of this radius holds the shortest way between any two of its points.
const CONVEX_METRES: f64 = 9_900_000.0;
/// Steps until the nearest point of an edge is found; three usually suffice.
const STEPS_MAX: usize = 12;

/// Length and direction of the shortest way between two points.
fn inverse(a: Point, b: Point) -> (f64, f64) {
    let (metres, azimuth, _, _): (f64, f64, f64, f64) = ELLIPSOID.inverse(a.y, a.x, b.y, b.x);
    (metres, azimuth)
}

/// Where one gets from a point, and in which direction one then looks.
fn direct(from: Point, azimuth: f64, metres: f64) -> (Point, f64) {
    let (y, x, azimuth): (f64, f64, f64) = ELLIPSOID.direct(from.y, from.x, azimuth, metres);
    (Point { x, y }, azimuth)
}

/// An angle in degrees between -180 and 180.
fn turn(degrees: f64) -> f64 {
    let degrees = degrees.rem_euclid(360.0);
    if degrees > 180.0 { degrees - 360.0 } else { degrees }
}

/// Whether most of the globe lies left of a ring.
pub(super) fn is_larger_on_the_left(ring: &Ring) -> bool {
    Globe.left_area(ring) > ELLIPSOID.area() / 2.0
}

/// Whether a point lies beyond all of a ring: in no circle around the ring's first point that holds the ring, and that is small
/// enough to hold what the ring encloses.
fn is_beyond(ring: &Ring, point: Point) -> bool {
    let Some(first) = ring.first() else { return true };
    let metres = inverse(*first, point).0;
    metres > FAR_METRES
        && ring
            .iter()
            .all(|vertex| inverse(*first, *vertex).0 < metres.min(CONVEX_METRES))
}

impl Surface for Globe {
    fn distance(&self, a: Point, b: Point) -> f64 {
        inverse(a, b).0
    }

    /// Walks along the edge to the foot of the perpendicular: each step assumes a sphere, and the steps shrink quickly.
    fn distance_to_edge(&self, point: Point, start: Point, end: Point) -> f64 {
        let (length, azimuth) = inverse(start, end);
        let mut along = 0.0;
        for _ in 0..STEPS_MAX {
            let (at, heading) = direct(start, azimuth, along);
            let (metres, towards) = inverse(at, point);
            let angle = metres / RADIUS_METRES;
            let step = RADIUS_METRES * (angle.sin() * (towards - heading).to_radians().cos()).atan2(angle.cos());
            let next = (along + step).clamp(0.0, length);
            let moved = (next - along).abs();
            along = next;
            if moved < 1e-6 {
                break;
            }
        }
        inverse(direct(start, azimuth, along).0, point).0
    }

    fn side(&self, start: Point, end: Point, point: Point) -> f64 {
        let (along, across) = (inverse(start, end).1, inverse(start, point));
        // Azimuths turn clockwise, so what is left of the way has the smaller one.
        across.0 * turn(along - across.1).to_radians().sin()
    }

    /// How often the ring turns around the point: once to the left means inside, once to the right means that the ring
    /// goes around the opposite of the inside, and not at all leaves the question to the ring's own direction.
    fn is_left_of(&self, ring: &Ring, point: Point) -> bool {
        if is_beyond(ring, point) {
            return is_larger_on_the_left(ring);
        }
        let azimuths: Vec<f64> = ring.iter().map(|vertex| inverse(point, *vertex).1).collect();
        let turned: f64 = azimuths.windows(2).map(|pair| turn(pair[0] - pair[1])).sum();
        match (turned / 360.0).round() {
            turns if turns > 0.0 => true,
            turns if turns < 0.0 => false,
            _ => is_larger_on_the_left(ring),
        }
    }

    fn area(&self, ring: &Ring) -> f64 {
        let left = self.left_area(ring);
        left.min(ELLIPSOID.area() - left)
    }

    fn left_area(&self, ring: &Ring) -> f64 {
        let mut polygon = PolygonArea::new(&ELLIPSOID, Winding::CounterClockwise);
        for vertex in ring.iter().skip(1) {
            polygon.add_point(vertex.y, vertex.x);
        }
        polygon.compute(false).1
    }

    fn tolerance(&self) -> f64 {
        1e-6
    }
}
