//! Line charts as SVG: axes, ticks, lines and a legend, and nothing from elsewhere.

use std::fmt::Write as _;

use super::axis::{Axis, Range, Scale, short};

/// Size of a picture, and the frame of the lines in it, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 510.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 346.0;
/// A line with fewer points than this has a mark at each.
const MARKED: usize = 20;

/// Line, by number; they can be told apart in grey, too, by their dashes.
const COLOURS: [(&str, &str); 6] = [
    ("#1b6ca8", "none"),
    ("#c8553d", "6 3"),
    ("#3c8d5a", "2 3"),
    ("#8a5fb0", "9 3 2 3"),
    ("#7a6a00", "12 4"),
    ("#444444", "1 2"),
];

/// A line and its name.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A picture of lines.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

impl Chart {
    /// The picture, as the text of a file.
    pub(super) fn svg(&self) -> String {
        let seen = |(x, y): &(f64, f64)| {
            let fits = |v: &f64, Axis(_, scale): Axis| {
                v.is_finite() && (scale == Scale::Linear || *v > 0.0)
            };
            fits(x, self.x) && fits(y, self.y)
        };
        let lines: Vec<Vec<(f64, f64)>> = self
            .lines
            .iter()
            .map(|line| line.points.iter().copied().filter(seen).collect())
            .collect();
        let x = Range::around(self.x.1, lines.iter().flatten().map(|point| point.0));
        let y = Range::around(self.y.1, lines.iter().flatten().map(|point| point.1));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        let middle = f64::midpoint(LEFT, RIGHT);
        put_text(&mut svg, (LEFT, 24.0), "font-size=\"15\"", &self.title);
        put_text(&mut svg, (middle, BOTTOM + 38.0), "text-anchor=\"middle\"", self.x.0);
        let height = f64::midpoint(TOP, BOTTOM);
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 16 {height})\"");
        put_text(&mut svg, (16.0, height), &turned, self.y.0);
        put_ticks(&mut svg, &x, &y);
        for ((number, line), points) in self.lines.iter().enumerate().zip(&lines) {
            let points: Vec<_> = points.iter().map(|p| (across(&x, p.0), up(&y, p.1))).collect();
            put_line(&mut svg, number, &points);
            put_legend(&mut svg, number, &line.name);
        }
        svg + "</svg>\n"
    }
}

fn across(range: &Range, value: f64) -> f64 {
    LEFT + range.place(value) * (RIGHT - LEFT)
}

fn up(range: &Range, value: f64) -> f64 {
    BOTTOM - range.place(value) * (BOTTOM - TOP)
}

fn put_text(svg: &mut String, (x, y): (f64, f64), how: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {how}>{text}</text>");
}

fn put_stroke(svg: &mut String, from: (f64, f64), to: (f64, f64), how: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ =
        writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {how}/>");
}

fn put_ticks(svg: &mut String, x: &Range, y: &Range) {
    let grid = "stroke=\"#ddd\"";
    for tick in &x.ticks {
        let at = across(x, *tick);
        put_stroke(svg, (at, TOP), (at, BOTTOM), grid);
        put_text(svg, (at, BOTTOM + 18.0), "text-anchor=\"middle\"", &short(*tick));
    }
    for tick in &y.ticks {
        let at = up(y, *tick);
        put_stroke(svg, (LEFT, at), (RIGHT, at), grid);
        put_text(svg, (LEFT - 6.0, at + 4.0), "text-anchor=\"end\"", &short(*tick));
    }
    put_stroke(svg, (LEFT, BOTTOM), (RIGHT, BOTTOM), "stroke=\"#222\"");
    put_stroke(svg, (LEFT, TOP), (LEFT, BOTTOM), "stroke=\"#222\"");
}

fn put_line(svg: &mut String, number: usize, points: &[(f64, f64)]) {
    let (colour, dashes) = COLOURS[number % COLOURS.len()];
    let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
         stroke-dasharray=\"{dashes}\"/>",
        path.join(" ")
    );
    for (x, y) in points.iter().take(if points.len() < MARKED { MARKED } else { 0 }) {
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
    }
}

fn put_legend(svg: &mut String, number: usize, name: &str) {
    let (colour, dashes) = COLOURS[number % COLOURS.len()];
    #[allow(clippy::cast_precision_loss)]
    let y = TOP + 8.0 + 20.0 * number as f64;
    let how = format!("stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"");
    put_stroke(svg, (RIGHT + 14.0, y), (RIGHT + 40.0, y), &how);
    put_text(svg, (RIGHT + 46.0, y + 4.0), "", name);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x: Scale, points: &[(f64, f64)]) -> String {
        let lines = vec![Line { name: "a < b".to_owned(), points: points.to_vec() }];
        let (x, y) = (Axis("ms", x), Axis("share", Scale::Linear));
        Chart { title: "T & U".to_owned(), x, y, lines }.svg()
    }

    #[test]
    fn a_chart_holds_its_lines_and_escapes_its_words() {
        let svg = chart(Scale::Log, &[(0.7, 0.5), (3.0, 0.99), (21.0, 1.0), (0.0, 0.3)]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("T &amp; U") && svg.contains("a &lt; b"), "{svg}");
        // Zero has no place on a logarithmic axis.
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_picture() {
        for scale in [Scale::Linear, Scale::Log] {
            for points in [&[][..], &[(1.0, 0.0)], &[(f64::NAN, 1.0)]] {
                let svg = chart(scale, points);
                assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"), "{svg}");
            }
        }
    }
}
