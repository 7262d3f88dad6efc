//! Relations between geometries, on any surface.

use super::geometry::{Geometry, Point, Polygon};
use super::surface::Surface;

/// The shortest distance; zero when they touch.
pub(super) fn distance(surface: &dyn Surface, a: &Geometry, b: &Geometry) -> f64 {
    if let ([a], [b]) = (a.points.as_slice(), b.points.as_slice()) {
        return surface.distance(*a, *b);
    }
    if intersects(surface, a, b) {
        return 0.0;
    }
    let one_way = |from: &Geometry, to: &Geometry| {
        let to_point = |vertex: Point| {
            let points = to.points.iter().map(move |point| surface.distance(vertex, *point));
            let edges = to
                .edges()
                .map(move |(start, end)| surface.distance_to_edge(vertex, start, end));
            points.chain(edges).fold(f64::INFINITY, f64::min)
        };
        from.vertices().map(to_point).fold(f64::INFINITY, f64::min)
    };
    one_way(a, b).min(one_way(b, a))
}

/// Whether they have a point in common.
pub(super) fn intersects(surface: &dyn Surface, a: &Geometry, b: &Geometry) -> bool {
    a.vertices().any(|vertex| covers(surface, b, vertex))
        || b.vertices().any(|vertex| covers(surface, a, vertex))
        || edges_cross(surface, a, b)
}

/// Whether all of `a` lies in `b`. The boundary belongs to `b`.
pub(super) fn within(surface: &dyn Surface, a: &Geometry, b: &Geometry) -> bool {
    let vertices_inside = a.vertices().all(|vertex| covers(surface, b, vertex));
    // A hole lies in the way when one of its corners lies strictly inside.
    let hole_inside = || {
        let holes = b.polygons.iter().flat_map(|polygon| polygon.iter().skip(1)).flatten();
        holes
            .into_iter()
            .any(|corner| a.polygons.iter().any(|polygon| is_inside(surface, polygon, *corner)))
    };
    vertices_inside && !edges_cross(surface, a, b) && !hole_inside()
}

/// The area of its polygons.
pub(super) fn area(surface: &dyn Surface, geometry: &Geometry) -> f64 {
    let one = |polygon: &Polygon| {
        let holes: f64 = polygon.iter().skip(1).map(|hole| surface.area(hole)).sum();
        surface.left_area(&polygon[0]) - holes
    };
    geometry.polygons.iter().map(one).sum()
}

/// Whether two edges pass through each other. Mere touching shows at the vertices.
fn edges_cross(surface: &dyn Surface, a: &Geometry, b: &Geometry) -> bool {
    a.edges().any(|(a_start, a_end)| {
        b.edges().any(|(b_start, b_end)| {
            let splits = |start, end, one, other| surface.side(start, end, one) * surface.side(start, end, other) < 0.0;
            // On a globe two ways cross on both sides of it: the edges must reach one and the same crossing.
            let within_reach = || {
                let reach = surface.distance(a_start, a_end) + surface.distance(b_start, b_end);
                surface.distance(a_start, b_start) <= reach * (1.0 + 1e-9)
            };
            splits(a_start, a_end, b_start, b_end) && splits(b_start, b_end, a_start, a_end) && within_reach()
        })
    })
}

/// Whether a point belongs to the geometry, its boundary included.
fn covers(surface: &dyn Surface, geometry: &Geometry, point: Point) -> bool {
    let touches = |(start, end): (Point, Point)| surface.distance_to_edge(point, start, end) <= surface.tolerance();
    geometry
        .points
        .iter()
        .any(|own| surface.distance(*own, point) <= surface.tolerance())
        || geometry
            .polygons
            .iter()
            .any(|polygon| is_inside(surface, polygon, point))
        || geometry.edges().any(touches)
}

/// Whether a point that is not on the boundary lies in a polygon. A hole is the smaller side of its ring.
fn is_inside(surface: &dyn Surface, polygon: &Polygon, point: Point) -> bool {
    let in_hole = |hole: &Vec<Point>| {
        let inverted = surface.left_area(hole) > 2.0 * surface.area(hole);
        surface.is_left_of(hole, point) != inverted
    };
    surface.is_left_of(&polygon[0], point) && !polygon.iter().skip(1).any(in_hole)
}
