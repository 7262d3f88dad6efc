//! How the time that something takes on a link is spread around its latency.
//!
//! Pure: chance comes in as numbers from 0 to 1.

use std::f64::consts::TAU;
use std::time::Duration;

/// The shape of a tail: of a hundred parcels one takes 3.6 times the jitter longer, of a thousand one nine times.
const PARETO_SHAPE: f64 = 3.0;
/// No parcel takes more than this many times the jitter longer, or one in a million would be late by minutes.
const TAIL_MAX: f64 = 20.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// The latency and nothing else.
    Fixed,
    /// The latency and at most the jitter more, evenly spread.
    #[default]
    Uniform,
    /// Around the latency, with the jitter as standard deviation.
    Normal,
    /// The latency and a tail: mostly a part of the jitter more, seldom many times of it.
    Pareto,
}

impl Distribution {
    pub const ALL: [Distribution; 4] = [
        Distribution::Fixed,
        Distribution::Uniform,
        Distribution::Normal,
        Distribution::Pareto,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Distribution::Fixed => "fixed",
            Distribution::Uniform => "uniform",
            Distribution::Normal => "normal",
            Distribution::Pareto => "pareto",
        }
    }

    pub fn named(name: &str) -> Option<Distribution> {
        Distribution::ALL.into_iter().find(|known| known.name() == name)
    }

    /// How long something takes. `draw` gives a number from 0 to 1, one that is not 1.
    pub fn delay(self, latency: Duration, jitter: Duration, mut draw: impl FnMut() -> f64) -> Duration {
        match self {
            Distribution::Fixed => latency,
            Distribution::Uniform => latency + jitter.mul_f64(draw()),
            Distribution::Normal => {
                let seconds = latency.as_secs_f64() + jitter.as_secs_f64() * standard_normal(draw(), draw());
                Duration::from_secs_f64(seconds.max(0.0))
            }
            Distribution::Pareto => {
                let tail = (1.0 - draw()).powf(-1.0 / PARETO_SHAPE) - 1.0;
                latency + jitter.mul_f64(tail.clamp(0.0, TAIL_MAX))
            }
        }
    }
}

/// Box and Muller's way from two even numbers to one of the bell curve.
fn standard_normal(first: f64, second: f64) -> f64 {
    let radius = (-2.0 * (1.0 - first).ln()).sqrt();
    (radius * (TAU * second).cos()).clamp(-TAIL_MAX, TAIL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays in milliseconds of a link with 100 ms and a jitter of 10 ms, from numbers that cover 0 to 1.
    fn delays(distribution: Distribution) -> Vec<f64> {
        let n = 10_000;
        let mut state = 1u64;
        let mut draw = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let (latency, jitter) = (Duration::from_millis(100), Duration::from_millis(10));
        let mut delays: Vec<f64> = (0..n)
            .map(|_| distribution.delay(latency, jitter, &mut draw).as_secs_f64() * 1000.0)
            .collect();
        delays.sort_by(f64::total_cmp);
        delays
    }

    /// The delay that this share of parcels stays below.
    fn below(delays: &[f64], share: f64) -> f64 {
        delays[(delays.len() as f64 * share) as usize]
    }

    fn check(distribution: Distribution, expected: &[(f64, f64)]) {
        let delays = delays(distribution);
        for (share, milliseconds) in expected {
            let found = below(&delays, *share);
            assert!(
                (found - milliseconds).abs() < 1.5,
                "{distribution:?}: {share} below {found}"
            );
        }
    }

    #[test]
    fn each_distribution_has_its_shape() {
        check(Distribution::Fixed, &[(0.0, 100.0), (0.999, 100.0)]);
        check(Distribution::Uniform, &[(0.0, 100.0), (0.5, 105.0), (0.99, 109.9)]);
        check(Distribution::Normal, &[(0.02275, 80.0), (0.5, 100.0), (0.97725, 120.0)]);
        check(Distribution::Pareto, &[(0.0, 100.0), (0.5, 102.6), (0.9, 111.5)]);
    }

    #[test]
    fn nothing_arrives_before_it_leaves() {
        let (latency, jitter) = (Duration::from_millis(1), Duration::from_secs(1));
        let mut draws = [0.999_999, 0.5].into_iter().cycle();
        let delay = Distribution::Normal.delay(latency, jitter, || draws.next().unwrap());
        assert_eq!(delay, Duration::ZERO);
    }

    #[test]
    fn a_name_stands_for_each() {
        for distribution in Distribution::ALL {
            assert_eq!(Distribution::named(distribution.name()), Some(distribution));
        }
        assert_eq!(Distribution::named("even"), None);
    }
}
