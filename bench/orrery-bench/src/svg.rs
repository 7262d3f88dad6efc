//! A chart of lines as an SVG file, both scales logarithmic: a cost that does not grow is level, one that grows with the
//! size rises as steeply as the size itself.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;
/// Told apart also by people who see few colours.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub lines: Vec<Line>,
}

/// Points with positive coordinates.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        std::fs::write(path, self.to_svg()).with_context(|| format!("cannot write {}", path.display()))
    }

    fn to_svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let x = Scale::over(all().map(|point| point.0), LEFT, WIDTH - RIGHT);
        let y = Scale::over(all().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n",
            escaped(&self.title)
        );
        self.write_grid(&mut svg, &x, &y);
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            write_line(&mut svg, line, colour, &x, &y);
        }
        self.write_names(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn write_grid(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for power in x.powers() {
            let at = x.at(power);
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                label(power)
            );
        }
        for power in y.powers() {
            let at = y.at(power);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} {}</text>",
                LEFT - 8.0,
                at + 4.0,
                label(power),
                escaped(&self.y_label)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            bottom + 38.0,
            escaped(&self.x_label)
        );
    }

    fn write_names(&self, svg: &mut String) {
        for (number, (line, colour)) in self.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let (x, y) = (WIDTH - RIGHT + 20.0, TOP + 20.0 * number as f64 + 8.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                y - 2.0,
                x + 20.0,
                y + 4.0,
                escaped(&line.name)
            );
        }
    }
}

fn write_line(svg: &mut String, line: &Line, colour: &str, x: &Scale, y: &Scale) {
    let points: Vec<String> = line
        .points
        .iter()
        .map(|point| format!("{:.1},{:.1}", x.at(point.0), y.at(point.1)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        points.join(" ")
    );
    for point in &line.points {
        let (at_x, at_y) = (x.at(point.0), y.at(point.1));
        let _ = writeln!(
            svg,
            "<circle cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"3\" fill=\"{colour}\"/>\
             <text x=\"{at_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\">{}</text>",
            at_y - 7.0,
            label(point.1)
        );
    }
}

/// From powers of ten to a stretch of the picture.
struct Scale {
    first: f64,
    last: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Whole powers of ten around all values.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for power in values.filter(|value| *value > 0.0).map(f64::log10) {
            (least, most) = (least.min(power), most.max(power));
        }
        let (first, last) = if least <= most {
            (least.floor(), most.ceil())
        } else {
            (0.0, 1.0)
        };
        Scale {
            first,
            last: last.max(first + 1.0),
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(f64::MIN_POSITIVE).log10() - self.first) / (self.last - self.first);
        self.from + share * (self.to - self.from)
    }

    fn powers(&self) -> impl Iterator<Item = f64> + use<> {
        (self.first as i32..=self.last as i32).map(|power| 10f64.powi(power))
    }
}

/// Three digits at most, with the usual letters for thousands and millions.
fn label(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e4 => (value / 1e3, " k"),
        value => (value, ""),
    };
    match scaled {
        scaled if scaled >= 100.0 || scaled.fract() == 0.0 => format!("{scaled:.0}{unit}"),
        scaled if scaled >= 10.0 => format!("{scaled:.1}{unit}"),
        scaled => format!("{scaled:.2}{unit}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> Chart {
        Chart {
            title: "a < b & c".to_owned(),
            x_label: "items".to_owned(),
            y_label: "µs".to_owned(),
            lines: vec![Line {
                name: "one".to_owned(),
                points: points.to_vec(),
            }],
        }
    }

    #[test]
    fn every_point_lies_within_the_picture_and_greater_values_lie_higher() {
        let svg = chart(&[(1e4, 20.0), (1e6, 3000.0)]).to_svg();
        let centres: Vec<(f64, f64)> = svg
            .split("<circle cx=\"")
            .skip(1)
            .map(|rest| {
                let mut numbers = rest.split('"').step_by(2).map(|number| number.parse::<f64>().unwrap());
                (numbers.next().unwrap(), numbers.next().unwrap())
            })
            .collect();
        let [(x1, y1), (x2, y2)] = centres[..] else {
            panic!("two points");
        };
        assert!(LEFT <= x1 && x1 < x2 && x2 <= WIDTH - RIGHT, "{x1} {x2}");
        assert!(TOP <= y2 && y2 < y1 && y1 <= HEIGHT - BOTTOM, "{y1} {y2}");
    }

    #[test]
    fn a_title_cannot_break_the_file() {
        assert!(chart(&[]).to_svg().contains("a &lt; b &amp; c"));
    }

    #[test]
    fn numbers_are_short() {
        let labels = [0.5, 12.34, 440.2, 10_000.0, 1_000_000.0].map(label);
        assert_eq!(labels, ["0.50", "12.3", "440", "10 k", "1 M"]);
    }
}
