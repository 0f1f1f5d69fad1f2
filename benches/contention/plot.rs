//! The picture: a column for each time to think, above the claims a second, below what was tried in vain, over the
//! number of workers. One set of colours, of middling lightness: it is legible on light and on dark ground, whichever
//! of them the page that shows it has.

use std::fmt::Write as _;

use crate::{Point, workers::WAYS};

const WIDTH: f64 = 860.0;
/// Left of the first column, for the figures of the scale.
const LEFT: f64 = 46.0;
const COLUMN_GAP: f64 = 22.0;
const COLUMN_WIDTH_MAX: f64 = 420.0;
const LEGEND_HEIGHT: f64 = 26.0;
const SAMPLE_WIDTH: f64 = 30.0;
/// A legend's name takes about so much for each letter.
const LETTER_WIDTH: f64 = 6.6;
/// A row's title and its columns' titles.
const HEAD_HEIGHT: f64 = 50.0;
const PLOT_HEIGHT: f64 = 170.0;
/// The numbers of workers, below a row.
const FOOT_HEIGHT: f64 = 24.0;
/// From the frame to the first and the last number of workers.
const INSET: f64 = 12.0;
const LINE_HEIGHT: f64 = 17.0;
/// A scale has about so many steps.
const STEPS: f64 = 5.0;

/// The classes are for the ways in their order.
const STYLE: &str = "text { font: 12px system-ui, sans-serif; fill: #6e7781; }
    .title { font-weight: 600; } .middle { text-anchor: middle; } .end { text-anchor: end; }
    .grid { stroke: #8b95a1; stroke-opacity: 0.3; } .axis { stroke: #8b95a1; }
    polyline { fill: none; stroke-width: 2; stroke-linejoin: round; } .range { stroke-opacity: 0.6; }
    .way0 { stroke: #b7791f; } circle.way0 { fill: #b7791f; }
    .way1 { stroke: #b7791f; } polyline.way1 { stroke-dasharray: 5 3; } circle.way1 { fill: none; }
    .way2 { stroke: #12958a; } circle.way2 { fill: #12958a; }";

/// A row of the picture: a figure of each point.
struct Row {
    title: &'static str,
    figure: fn(&Point, f64) -> f64,
}

const ROWS: [Row; 2] = [
    Row { title: "Claims a second, of all workers together (higher is better)", figure: Point::claims },
    Row { title: "Attempts in vain for each claim (lower is better)", figure: Point::wasted },
];

/// Where a plot is, and its scales.
struct Frame<'a> {
    left: f64,
    top: f64,
    width: f64,
    workers: &'a [usize],
    most: f64,
}

impl Frame<'_> {
    fn x(&self, workers: usize) -> f64 {
        let index =
            self.workers.iter().position(|&other| other == workers).expect("the axis has all that were measured");
        let gaps = count(self.workers.len() - 1).max(1.0);
        self.left + INSET + count(index) * (self.width - 2.0 * INSET) / gaps
    }

    fn y(&self, value: f64) -> f64 {
        self.top + PLOT_HEIGHT * (1.0 - (value / self.most).min(1.0))
    }
}

/// The plots of a row share one scale, from zero; steps between numbers of workers are drawn alike.
pub fn svg(points: &[Point], caption: &[String]) -> String {
    let thinks = distinct(points.iter().map(|point| point.setup.think_ms));
    let workers = distinct(points.iter().map(|point| point.setup.workers));
    let columns = count(thinks.len());
    let width = ((WIDTH - LEFT + COLUMN_GAP - 4.0) / columns - COLUMN_GAP).min(COLUMN_WIDTH_MAX);
    let mut body = String::new();
    legend(&mut body);
    let mut top = LEGEND_HEIGHT;
    for row in &ROWS {
        // One lucky round would make all the rest small: a bar that does not fit ends at the frame.
        let most = points.iter().map(|point| (row.figure)(point, 0.5)).fold(f64::MIN_POSITIVE, f64::max);
        let step = step(most);
        let most = (most / step).ceil() * step;
        text(&mut body, 0.0, top + 16.0, "title", row.title);
        top += HEAD_HEIGHT;
        for (column, &think_ms) in thinks.iter().enumerate() {
            let left = LEFT + count(column) * (width + COLUMN_GAP);
            let frame = Frame { left, top, width, workers: &workers, most };
            text(&mut body, left + width / 2.0, top - 10.0, "middle", &format!("{think_ms} ms to think"));
            axes(&mut body, &frame, step, column == 0);
            let of_column: Vec<&Point> = points.iter().filter(|point| point.setup.think_ms == think_ms).collect();
            lines(&mut body, &frame, &of_column, row.figure);
        }
        top += PLOT_HEIGHT + FOOT_HEIGHT;
    }
    let middle = f64::midpoint(LEFT, LEFT + columns * (width + COLUMN_GAP) - COLUMN_GAP);
    text(&mut body, middle, top + 8.0, "middle", "worker processes on one queue");
    top += 34.0;
    for line in caption {
        text(&mut body, 0.0, top, "caption", line);
        top += LINE_HEIGHT;
    }
    let height = top - LINE_HEIGHT + 8.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"claims and attempts in vain, over workers\">\n  <style>{STYLE}</style>\n{body}</svg>\n"
    )
}

fn legend(svg: &mut String) {
    let mut x = 0.0;
    for (number, way) in WAYS.iter().enumerate() {
        let y = 10.0;
        polyline(svg, number, &format!("{x:.1},{y} {:.1},{y}", x + SAMPLE_WIDTH));
        dot(svg, number, x + SAMPLE_WIDTH / 2.0, y);
        text(svg, x + SAMPLE_WIDTH + 7.0, y + 4.0, "way", way.name);
        x += SAMPLE_WIDTH + 7.0 + count(way.name.len()) * LETTER_WIDTH + 24.0;
    }
}

fn axes(svg: &mut String, frame: &Frame, step: f64, with_figures: bool) {
    let right = frame.left + frame.width;
    let mut value = 0.0;
    while value <= frame.most + step / 2.0 {
        let (y, class) = (frame.y(value), if value == 0.0 { "axis" } else { "grid" });
        segment(svg, class, (frame.left, y), (right, y));
        if with_figures {
            text(svg, frame.left - 7.0, y + 4.0, "end", &format!("{value}"));
        }
        value += step;
    }
    let bottom = frame.y(0.0);
    for &workers in frame.workers {
        let x = frame.x(workers);
        segment(svg, "axis", (x, bottom), (x, bottom + 4.0));
        text(svg, x, bottom + 17.0, "middle", &workers.to_string());
    }
}

fn lines(svg: &mut String, frame: &Frame, points: &[&Point], figure: fn(&Point, f64) -> f64) {
    for (number, way) in WAYS.iter().enumerate() {
        let of_way: Vec<&&Point> = points.iter().filter(|point| point.setup.way == way).collect();
        let places: Vec<(f64, f64)> =
            of_way.iter().map(|point| (frame.x(point.setup.workers), frame.y(figure(point, 0.5)))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        polyline(svg, number, &path.join(" "));
        for (point, &(x, y)) in of_way.iter().zip(&places) {
            let (least, most) = (frame.y(figure(point, 0.0)), frame.y(figure(point, 1.0)));
            segment(svg, &format!("range way{number}"), (x, least), (x, most));
            dot(svg, number, x, y);
        }
    }
}

/// One, two or five times a power of ten, so that there are few steps up to a value.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most / STEPS).log10().floor());
    let fits = |times: &f64| times * power * STEPS >= most;
    power * [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0)
}

fn polyline(svg: &mut String, way: usize, points: &str) {
    writeln!(svg, "  <polyline class=\"way{way}\" points=\"{points}\"/>").expect("a string takes all");
}

fn dot(svg: &mut String, way: usize, x: f64, y: f64) {
    writeln!(svg, "  <circle class=\"way{way}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.8\"/>").expect("a string takes all");
}

fn segment(svg: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    writeln!(svg, "  <line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>")
        .expect("a string takes all");
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, "  <text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>").expect("a string takes all");
}

fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values.dedup();
    values
}

/// Counts of what is drawn are small.
#[allow(clippy::cast_precision_loss)]
fn count(of: usize) -> f64 {
    of as f64
}
