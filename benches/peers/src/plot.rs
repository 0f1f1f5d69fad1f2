//! The plot: for each work a bar for casque and one for each peer, as SVG that is legible on light and on dark ground.

use std::fmt::Write as _;

use crate::{line::Line, run::quantile};

const WIDTH: f64 = 860.0;
const LABEL_WIDTH: f64 = 250.0;
const BARS_WIDTH: f64 = 500.0;
const BAR_HEIGHT: f64 = 13.0;
const ROW_HEIGHT: f64 = 19.0;
const TITLE_HEIGHT: f64 = 34.0;
const TOP: f64 = 34.0;

const STYLE: &str = "text { font: 12px system-ui, sans-serif; fill: #57606a; }
    .title { font-weight: 600; }
    .casque { fill: #0f766e; } .durable { fill: #8b95a1; }
    .other { fill: none; stroke: #8b95a1; stroke-dasharray: 3 2; }
    @media (prefers-color-scheme: dark) { text { fill: #9aa4af; } .casque { fill: #2dd4bf; } }";

struct Bar<'a> {
    name: &'a str,
    class: &'static str,
    value: f64,
    text: String,
}

/// Bars of one work share one scale, from zero.
pub fn svg(lines: &[Line]) -> String {
    let mut works: Vec<&Line> = Vec::new();
    for line in lines {
        if !works.iter().any(|work| work.work.key == line.work.key) {
            works.push(line);
        }
    }
    let (mut body, mut y) = (String::new(), TOP);
    for work in works {
        let bars = bars(lines, work);
        y += TITLE_HEIGHT;
        let better = if work.work.kind.is_time() { "ms, median; shorter is better" } else { "jobs per second" };
        text(&mut body, 0.0, y - 10.0, "title", &format!("{} ({better})", work.work.title));
        let longest = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
        for bar in bars {
            let width = (BARS_WIDTH * bar.value / longest).max(1.0);
            text(&mut body, 0.0, y + BAR_HEIGHT - 2.0, "name", bar.name);
            writeln!(
                body,
                "  <rect class=\"{}\" x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\"/>",
                bar.class
            )
            .expect("a string takes all");
            text(&mut body, LABEL_WIDTH + width + 6.0, y + BAR_HEIGHT - 2.0, "figure", &bar.text);
            y += ROW_HEIGHT;
        }
    }
    let key = "filled: on the disk when it is answered; dashed: not";
    let mut head = String::new();
    text(&mut head, 0.0, 14.0, "key", key);
    let height = y + 8.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"casque beside its peers\">\n  <style>{STYLE}</style>\n{head}{body}</svg>\n"
    )
}

fn bars<'a>(lines: &'a [Line], work: &'a Line) -> Vec<Bar<'a>> {
    let is_time = work.work.kind.is_time();
    let bar = |name, class, value: f64| {
        let text = if is_time { format!("{value:.2}") } else { thousands(value) };
        Bar { name, class, value, text }
    };
    let of_work: Vec<&Line> = lines.iter().filter(|line| line.work.key == work.work.key).collect();
    // casque runs beside each peer, so it has as many figures: the middle one is drawn.
    let ours: Vec<f64> = of_work.iter().map(|line| line.casque().median).collect();
    let mut bars = vec![bar("casque", "casque", quantile(&ours, 0.5))];
    for line in of_work {
        bars.push(bar(line.peer, if line.is_durable { "durable" } else { "other" }, line.theirs().median));
    }
    bars
}

fn thousands(value: f64) -> String {
    if value < 100_000.0 { format!("{:.1}k", value / 1e3) } else { format!("{:.0}k", value / 1e3) }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, "  <text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>").expect("a string takes all");
}
