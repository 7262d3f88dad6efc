//! GeoJSON geometry, on the globe or in the plane.
//!
//! On the globe everything is measured on the WGS-84 ellipsoid and edges are geodesics, so an edge between two points of
//! one latitude bulges towards the pole.

pub(crate) mod cells;
mod functions;
mod geometry;
mod globe;
mod plane;
mod relate;
mod surface;

pub(super) use functions::register;
