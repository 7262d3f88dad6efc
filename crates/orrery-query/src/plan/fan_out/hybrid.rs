//! placeholder
use super::build::Built;
use super::features::Features;
use crate::error::{QueryError, Result};
use crate::parse::ast::Statement;
use crate::plan::Plan;
pub(super) fn build(_: &Statement, _: &Plan, _: &Features) -> Result<Built> {
    Err(QueryError::plain("later"))
}
