//! GeoJSON, read and checked.

use orrery_model::Value;

/// Longitude and latitude in degrees, or x and y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
}

/// A closed line: the last point repeats the first.
pub(super) type Ring = Vec<Point>;

/// The outer ring, then the holes.
pub(super) type Polygon = Vec<Ring>;

/// A valid geometry of any kind, taken apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Geometry {
    pub points: Vec<Point>,
    pub lines: Vec<Vec<Point>>,
    pub polygons: Vec<Polygon>,
}

impl Geometry {
    /// Reads a GeoJSON value, or says what is wrong with it.
    pub fn read(value: &Value, planar: bool) -> Result<Geometry, String> {
        let kind = value
            .get("type")
            .and_then(Value::as_str)
            .ok_or("The input is not a GeoJSON object with a type.")?;
        let coordinates = value
            .get("coordinates")
            .ok_or("The GeoJSON object has no coordinates.")?;
        let reader = Reader { kind, planar };
        let mut geometry = Geometry::default();
        match kind {
            "Point" => geometry.points.push(reader.point(coordinates)?),
            "LineString" => geometry.lines.push(reader.line(coordinates)?),
            "Polygon" => geometry.polygons.push(reader.polygon(coordinates)?),
            "MultiPolygon" => {
                for polygon in reader.list(coordinates)? {
                    geometry.polygons.push(reader.polygon(polygon)?);
                }
            }
            other => return Err(format!("The GeoJSON type '{other}' is not supported.")),
        }
        Ok(geometry)
    }

    /// Every point that the geometry is given by.
    pub fn vertices(&self) -> impl Iterator<Item = Point> {
        let lines = self.lines.iter().chain(self.polygons.iter().flatten());
        self.points.iter().chain(lines.flatten()).copied()
    }

    /// Every edge of its lines and rings.
    pub fn edges(&self) -> impl Iterator<Item = (Point, Point)> {
        let lines = self.lines.iter().chain(self.polygons.iter().flatten());
        lines.flat_map(|line| line.windows(2).map(|pair| (pair[0], pair[1])))
    }
}

struct Reader<'a> {
    kind: &'a str,
    planar: bool,
}

/// Points of the smallest ring, its start counted twice.
const RING_POINTS_MIN: usize = 4;

impl Reader<'_> {
    fn list<'v>(&self, value: &'v Value) -> Result<&'v [Value], String> {
        value.as_array().ok_or_else(|| {
            format!(
                "The {} input is not valid because its coordinates are malformed.",
                self.kind
            )
        })
    }

    fn point(&self, value: &Value) -> Result<Point, String> {
        let numbers = self.list(value)?;
        let number = |index: usize| {
            numbers
                .get(index)
                .and_then(Value::as_number)
                .map(|number| number.to_f64())
        };
        let (Some(x), Some(y)) = (number(0), number(1)) else {
            return Err(format!(
                "The {} input is not valid because a position is not a pair of numbers.",
                self.kind
            ));
        };
        if !self.planar && !(-180.0..=180.0).contains(&x) {
            return Err("Longitude values must be between -180 and 180 degrees.".to_owned());
        }
        if !self.planar && !(-90.0..=90.0).contains(&y) {
            return Err("Latitude values must be between -90 and 90 degrees.".to_owned());
        }
        Ok(Point { x, y })
    }

    fn points(&self, value: &Value) -> Result<Vec<Point>, String> {
        self.list(value)?.iter().map(|point| self.point(point)).collect()
    }

    fn line(&self, value: &Value) -> Result<Vec<Point>, String> {
        let points = self.points(value)?;
        match points.len() {
            0 | 1 => Err("The LineString input is not valid because it has fewer than two positions.".to_owned()),
            _ => Ok(points),
        }
    }

    fn polygon(&self, value: &Value) -> Result<Polygon, String> {
        let kind = self.kind;
        let rings = self
            .list(value)?
            .iter()
            .map(|ring| self.points(ring))
            .collect::<Result<Polygon, String>>()?;
        if rings.is_empty() {
            return Err(format!("The {kind} input is not valid because it has no rings."));
        }
        for (index, ring) in rings.iter().enumerate() {
            let number = index + 1;
            if ring.first() != ring.last() {
                return Err(format!(
                    "The {kind} input is not valid because the start and end points of the ring number {number} are not \
                     the same. Each ring of a {} must have the same start and end points.",
                    kind.to_lowercase()
                ));
            }
            if ring.len() < RING_POINTS_MIN {
                return Err(format!(
                    "The {kind} input is not valid because the ring number {number} has fewer than {RING_POINTS_MIN} \
                     positions."
                ));
            }
        }
        Ok(rings)
    }
}
