//! Cells: the squares of a grid that geometries are found by.
//!
//! The whole surface is one cell, and every cell is cut into four, down to the smallest. A cell is named by which quarter it
//! is at each level, `0` to `3`, so that the name of a cell begins with the names of those it lies in. On the globe the grid is
//! that of longitudes and latitudes; the plane has no bounds, so its grid divides the doubles there are, by their bits.
//!
//! A cover may hold more than the geometry, never less. On the globe each part is put into a circle on the ground, with which
//! neither the date line nor a pole nor the curve of an edge needs thought: a circle of that size holds the shortest way between
//! any two of its points, and the latitudes and longitudes that it spans follow from its radius.

use orrery_model::Value;

use super::geometry::{Geometry, Point};
use super::globe;

/// How often the surface is cut; the smallest cells of the globe are some 0.6 m wide.
const LEVELS: u32 = 26;
/// Places along one side of the grid.
const SIDE: u32 = 1 << LEVELS;
/// Cells of one geometry in an item, and in a search.
const ITEM_CELLS_MAX: usize = 8;
const SEARCH_CELLS_MAX: usize = 16;
/// What is larger counts as lying everywhere.
const RADIUS_METRES_MAX: f64 = 2_500_000.0;
const VERTICES_MAX: usize = 4_096;
/// A geometry of more parts is covered as one.
const PARTS_MAX: usize = 16;
/// The ellipsoid's least radius of curvature along a meridian, and along a circle of latitude where that is a circle.
const MERIDIAN_RADIUS_METRES: f64 = 6_335_439.0;
const EQUATOR_RADIUS_METRES: f64 = 6_378_137.0;
/// A sphere that is nowhere smaller than the ellipsoid.
const SPHERE_RADIUS_METRES: f64 = 6_399_594.0;
/// What a search adds to a distance: more than relations between geometries tolerate.
const SLACK_METRES: f64 = 1.0;
const SLACK: f64 = 1e-6;
/// Coordinates of the plane beyond which distances may not be finite.
const COORDINATE_MAX: f64 = 1e100;

/// The cells of a stored geometry; none for what is no geometry.
pub(crate) fn of_item(value: &Value, planar: bool) -> Vec<String> {
    match Geometry::read(value, planar) {
        Ok(geometry) => cover(areas(&geometry, planar, None), ITEM_CELLS_MAX),
        Err(_) => Vec::new(),
    }
}

/// The cells of everything within a distance of a geometry; `None` for what is no geometry.
pub(crate) fn of_search(value: &Value, planar: bool, distance: f64) -> Option<Vec<String>> {
    let geometry = Geometry::read(value, planar).ok()?;
    Some(cover(areas(&geometry, planar, Some(distance)), SEARCH_CELLS_MAX))
}

/// A rectangle of the grid, its bounds included.
#[derive(Clone, Copy, Debug)]
struct Area {
    x: (u32, u32),
    y: (u32, u32),
}

/// Rectangles that hold a geometry and, in a search, what is near to it; `None` for everywhere.
fn areas(geometry: &Geometry, planar: bool, near: Option<f64>) -> Option<Vec<Area>> {
    let n_vertices = geometry.vertices().count();
    if n_vertices == 0 || n_vertices > VERTICES_MAX {
        return None;
    }
    if planar {
        let vertices: Vec<Point> = geometry.vertices().collect();
        return plane_area(&vertices, near).map(|area| vec![area]);
    }
    let is_turned = |polygon: &Vec<Vec<Point>>| globe::is_larger_on_the_left(&polygon[0]);
    if geometry.polygons.iter().any(is_turned) {
        return None;
    }
    let points = geometry.points.iter().map(|point| vec![*point]);
    let polygons = geometry.polygons.iter().map(|polygon| polygon.concat());
    let mut parts: Vec<Vec<Point>> = points.chain(geometry.lines.iter().cloned()).chain(polygons).collect();
    if parts.len() > PARTS_MAX {
        parts = vec![parts.concat()];
    }
    let mut areas = Vec::new();
    for part in &parts {
        areas.extend(globe_areas(part, near)?);
    }
    Some(areas)
}

fn plane_area(vertices: &[Point], near: Option<f64>) -> Option<Area> {
    let bounds = |coordinate: fn(&Point) -> f64| {
        let values = vertices.iter().map(coordinate);
        let (low, high) = (
            values.clone().fold(f64::INFINITY, f64::min),
            values.fold(f64::NEG_INFINITY, f64::max),
        );
        let size = low.abs().max(high.abs()).max(1.0);
        let margin = near.map_or(0.0, |distance| distance + (distance + size) * SLACK);
        // Not so for what is no number.
        (size + margin <= COORDINATE_MAX).then(|| (plane_place(low - margin), plane_place(high + margin)))
    };
    Some(Area {
        x: bounds(|point| point.x)?,
        y: bounds(|point| point.y)?,
    })
}

/// The upper bits of a double, in the order of numbers.
fn plane_place(coordinate: f64) -> u32 {
    // Both zeros are the same number.
    let bits = (coordinate + 0.0).to_bits();
    let ordered = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    (ordered >> (64 - LEVELS)) as u32
}

/// What a circle around the vertices spans: one rectangle, or two where it lies across the date line.
fn globe_areas(vertices: &[Point], near: Option<f64>) -> Option<Vec<Area>> {
    let centre = centre(vertices)?;
    let radius = vertices
        .iter()
        .map(|vertex| sphere_distance(centre, *vertex))
        .fold(0.0, f64::max);
    let radius = radius + near.map_or(0.0, |distance| distance + SLACK_METRES + (distance + radius) * SLACK);
    if radius.is_nan() || radius > RADIUS_METRES_MAX {
        return None;
    }
    let height = (radius / MERIDIAN_RADIUS_METRES).to_degrees();
    let (south, north) = (centre.y - height, centre.y + height);
    let y = (latitude_place(south), latitude_place(north));
    let narrowest = EQUATOR_RADIUS_METRES * south.abs().max(north.abs()).to_radians().cos();
    let width = (radius / narrowest).to_degrees();
    if south <= -90.0 || north >= 90.0 || width >= 180.0 {
        return Some(vec![Area { x: (0, SIDE - 1), y }]);
    }
    let (west, east) = (centre.x - width, centre.x + width);
    let area = |west, east| Area {
        x: (longitude_place(west), longitude_place(east)),
        y,
    };
    let mut areas = vec![area(west, east)];
    if west <= -180.0 {
        areas.push(area(west + 360.0, 180.0));
    }
    if east >= 180.0 {
        areas.push(area(-180.0, east - 360.0));
    }
    Some(areas)
}

/// A point among others; `None` when they lie around the whole globe.
fn centre(vertices: &[Point]) -> Option<Point> {
    if let [only] = vertices {
        return Some(*only);
    }
    let mut sum = [0.0; 3];
    for vertex in vertices {
        let (longitude, latitude) = (vertex.x.to_radians(), vertex.y.to_radians());
        sum[0] += latitude.cos() * longitude.cos();
        sum[1] += latitude.cos() * longitude.sin();
        sum[2] += latitude.sin();
    }
    let across = sum[0].hypot(sum[1]);
    (across.hypot(sum[2]) > 1e-3 * vertices.len() as f64).then(|| Point {
        x: sum[1].atan2(sum[0]).to_degrees(),
        y: sum[2].atan2(across).to_degrees(),
    })
}

/// The distance on a sphere that is nowhere smaller than the ellipsoid, so never less than the true one.
fn sphere_distance(a: Point, b: Point) -> f64 {
    let half_sine = |degrees: f64| (degrees.to_radians() / 2.0).sin();
    let chord =
        half_sine(b.y - a.y).powi(2) + a.y.to_radians().cos() * b.y.to_radians().cos() * half_sine(b.x - a.x).powi(2);
    2.0 * SPHERE_RADIUS_METRES * chord.sqrt().min(1.0).asin()
}

fn longitude_place(degrees: f64) -> u32 {
    place((degrees + 180.0) / 360.0)
}

fn latitude_place(degrees: f64) -> u32 {
    place((degrees + 90.0) / 180.0)
}

/// The place of a share of the grid's side; what lies beyond its ends is put there.
fn place(share: f64) -> u32 {
    ((share * f64::from(SIDE)) as u32).min(SIDE - 1)
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    level: u32,
    /// Which one it is along the sides, counted in cells of its level.
    x: u32,
    y: u32,
}

impl Cell {
    const WHOLE: Cell = Cell { level: 0, x: 0, y: 0 };

    fn quarters(self) -> impl Iterator<Item = Cell> {
        (0..4).map(move |quarter| Cell {
            level: self.level + 1,
            x: self.x << 1 | quarter & 1,
            y: self.y << 1 | quarter >> 1,
        })
    }

    /// The places along a side that the cell has, bounds included.
    fn span(self, at: u32) -> (u32, u32) {
        let width = LEVELS - self.level;
        (at << width, (at << width) + ((1 << width) - 1))
    }

    fn meets(self, area: &Area) -> bool {
        let overlap = |(from, to): (u32, u32), (low, high): (u32, u32)| from <= high && low <= to;
        overlap(self.span(self.x), area.x) && overlap(self.span(self.y), area.y)
    }

    fn lies_in(self, area: &Area) -> bool {
        let inside = |(from, to): (u32, u32), (low, high): (u32, u32)| low <= from && to <= high;
        inside(self.span(self.x), area.x) && inside(self.span(self.y), area.y)
    }

    fn name(self) -> String {
        let digit = |level: u32| {
            let bit = |at: u32| at >> (self.level - 1 - level) & 1;
            char::from(b'0' + (bit(self.y) << 1 | bit(self.x)) as u8)
        };
        (0..self.level).map(digit).collect()
    }
}

/// The smallest cells that together hold all areas, as far as there are not too many.
fn cover(areas: Option<Vec<Area>>, cells_max: usize) -> Vec<String> {
    // Cells that need no cutting, and those that may be cut.
    let (mut whole, mut open) = (Vec::new(), vec![Cell::WHOLE]);
    let areas = areas.unwrap_or_else(|| {
        whole.append(&mut open);
        Vec::new()
    });
    while !open.is_empty() {
        let (mut kept, mut cut) = (whole.clone(), Vec::new());
        for cell in &open {
            if cell.level == LEVELS || areas.iter().any(|area| cell.lies_in(area)) {
                kept.push(*cell);
            } else {
                cut.extend(
                    cell.quarters()
                        .filter(|quarter| areas.iter().any(|area| quarter.meets(area))),
                );
            }
        }
        if kept.len() + cut.len() > cells_max {
            whole.append(&mut open);
        } else {
            (whole, open) = (kept, cut);
        }
    }
    whole.into_iter().map(Cell::name).collect()
}

#[cfg(test)]
mod tests {
    use orrery_model::json::parse_value;

    use super::*;

    fn value(text: &str) -> Value {
        parse_value(text.as_bytes()).unwrap()
    }

    fn point(x: f64, y: f64) -> Value {
        value(&format!(r#"{{"type":"Point","coordinates":[{x},{y}]}}"#))
    }

    /// Whether a search of these cells finds an item with those.
    fn finds(search: &[String], item: &[String]) -> bool {
        let related = |a: &String, b: &String| a.starts_with(b.as_str()) || b.starts_with(a.as_str());
        search.iter().any(|a| item.iter().any(|b| related(a, b)))
    }

    fn is_near(a: (f64, f64), b: (f64, f64), metres: f64) -> bool {
        let search = of_search(&point(a.0, a.1), false, metres).unwrap();
        finds(&search, &of_item(&point(b.0, b.1), false))
    }

    #[test]
    fn a_point_has_one_small_cell_and_a_search_few() {
        let cells = of_item(&point(7.65, 45.97), false);
        assert_eq!((cells.len(), cells[0].len()), (1, LEVELS as usize));
        let search = of_search(&point(7.65, 45.97), false, 1_000.0).unwrap();
        assert!(
            search.len() <= SEARCH_CELLS_MAX && search.iter().all(|cell| cell.len() > 8),
            "{search:?}"
        );
    }

    #[test]
    fn what_is_near_is_found_across_the_date_line_and_around_the_poles() {
        assert!(is_near((179.9999, 0.0), (-179.9999, 0.0), 100.0));
        assert!(is_near((180.0, 10.0), (-180.0, 10.0), 0.0));
        assert!(is_near((-180.0, 10.0), (180.0, 10.0), 0.0));
        assert!(is_near((0.0, 89.9999), (170.0, 89.9999), 100.0));
        assert!(is_near((12.0, 90.0), (-100.0, 90.0), 0.0));
        assert!(is_near((12.0, -90.0), (77.0, -89.9999), 100.0));
    }

    #[test]
    fn what_is_far_away_is_not_found() {
        assert!(!is_near((7.0, 46.0), (8.0, 46.0), 1_000.0));
        assert!(!is_near((179.9, 0.0), (-179.9, 0.0), 1_000.0));
        assert!(!is_near((0.0, 89.0), (0.0, -89.0), 1_000.0));
    }

    #[test]
    fn a_polygon_the_wrong_way_round_lies_everywhere() {
        let polygon = |points: &str| value(&format!(r#"{{"type":"Polygon","coordinates":[[{points}]]}}"#));
        let small = of_item(&polygon("[0,0],[1,0],[1,1],[0,1],[0,0]"), false);
        assert!(small.len() <= ITEM_CELLS_MAX && !small.contains(&String::new()));
        assert_eq!(of_item(&polygon("[0,0],[0,1],[1,1],[1,0],[0,0]"), false), [""]);
    }

    #[test]
    fn nothing_is_no_geometry_and_an_empty_one_lies_everywhere() {
        assert!(of_item(&value(r#"{"type":"Point"}"#), false).is_empty());
        assert_eq!(of_search(&value("1"), false, 1.0), None);
        assert_eq!(
            of_item(&value(r#"{"type":"MultiPolygon","coordinates":[]}"#), false),
            [""]
        );
    }

    #[test]
    fn the_plane_has_cells_for_every_double() {
        let near = |a: (f64, f64), b: (f64, f64), distance: f64| {
            let search = of_search(&point(a.0, a.1), true, distance).unwrap();
            finds(&search, &of_item(&point(b.0, b.1), true))
        };
        assert!(near((0.0, 0.0), (-0.5, 0.5), 1.0));
        assert!(near((1e30, -1e30), (1e30, -1e30), 0.0));
        assert!(near((1e200, 0.0), (5.0, 5.0), 0.0), "what may overflow lies everywhere");
        assert!(!near((1000.0, 1000.0), (1100.0, 1000.0), 10.0));
        assert!(!near((-1000.0, 1000.0), (1000.0, 1000.0), 10.0));
    }
}
