//! The spatial functions.

use orrery_model::Value;
use orrery_model::json::Object;

use super::geometry::Geometry;
use super::globe::Globe;
use super::plane::Plane;
use super::relate;
use super::surface::Surface;
use crate::functions::arguments::{Arguments, boolean, double};
use crate::functions::registry::{Table, exactly};

pub(in crate::functions) fn register(table: &mut Table) {
    table.scalar("ST_DISTANCE", exactly(2), |arguments| {
        let (surface, a, b) = pair(arguments)?;
        double(relate::distance(surface, &a, &b))
    });
    table.scalar("ST_INTERSECTS", exactly(2), |arguments| {
        let (surface, a, b) = pair(arguments)?;
        boolean(relate::intersects(surface, &a, &b))
    });
    table.scalar("ST_WITHIN", exactly(2), |arguments| {
        let (surface, a, b) = pair(arguments)?;
        boolean(relate::within(surface, &a, &b))
    });
    table.scalar("ST_AREA", exactly(1), |arguments| {
        double(relate::area(surface(arguments), &geometry(arguments, 0)?))
    });
    table.scalar("ST_ISVALID", exactly(1), |arguments| {
        boolean(Geometry::read(arguments.get(0)?, arguments.environment.planar).is_ok())
    });
    table.scalar("ST_ISVALIDDETAILED", exactly(1), is_valid_detailed);
}

fn surface(arguments: &Arguments<'_>) -> &'static dyn Surface {
    if arguments.environment.planar { &Plane } else { &Globe }
}

fn geometry(arguments: &Arguments<'_>, index: usize) -> Option<Geometry> {
    Geometry::read(arguments.get(index)?, arguments.environment.planar).ok()
}

/// What relating a vertex of one geometry to one of the other takes.
const VERTEX_WORK: usize = 1_000;

fn pair(arguments: &Arguments<'_>) -> Option<(&'static dyn Surface, Geometry, Geometry)> {
    let (a, b) = (geometry(arguments, 0)?, geometry(arguments, 1)?);
    let factors = [a.vertices().count(), b.vertices().count(), VERTEX_WORK];
    arguments.environment.allow_work(&factors)?;
    Some((surface(arguments), a, b))
}

fn is_valid_detailed(arguments: &Arguments<'_>) -> Option<Value> {
    let problem = Geometry::read(arguments.get(0)?, arguments.environment.planar).err();
    let mut answer = Object::new();
    answer.insert("valid", Value::Bool(problem.is_none()));
    if let Some(reason) = problem {
        answer.insert("reason", Value::String(reason));
    }
    Some(Value::Object(answer))
}
