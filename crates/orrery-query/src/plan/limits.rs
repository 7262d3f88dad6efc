//! Limits of one statement.

/// JOINs of one statement, its subqueries included.
pub(super) const JOINS_MAX: usize = 10;
/// Calls of user-defined functions in one statement.
pub(super) const USER_CALLS_MAX: usize = 10;
/// Counts of TOP, OFFSET and LIMIT stay below this.
pub(super) const COUNT_END: i64 = 1 << 32;
/// Search terms of one FULLTEXTSCORE.
pub(super) const SCORE_TERMS_MAX: usize = 30;
/// Arguments of RRF.
pub(super) const FUSION_ARGUMENTS_MAX: usize = 100;
/// Points of a geometry that the statement or a parameter holds.
pub(super) const GEOMETRY_POINTS_MAX: usize = 256;
/// Memory that the copies of parameters in one statement may hold, one for each place where the statement names one.
pub(super) const PARAMETER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Expressions that are looked at to plan one statement. Those of a list that is grouped are looked at more than once, and
/// those within them more often still.
pub(super) const EXPRESSIONS_MAX: usize = 1_000_000;
/// Levels of the values that a statement makes. What goes through a value uses stack for each.
pub(super) const VALUE_LEVELS_MAX: usize = 512;
/// Problems reported of one statement.
pub(super) const PROBLEMS_MAX: usize = 100;
