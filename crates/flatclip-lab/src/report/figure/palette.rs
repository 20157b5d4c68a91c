//! Colours, dashes and markers: every series has its own. Series: Okabe and Ito's set, made for every kind of colour vision.
//! Heat maps: cividis, even in brightness.

/// Dashes, so that lines also differ without colour.
pub(super) const DASHES: [&str; 4] = ["", "6 3", "2 2", "8 3 2 3"];

/// How many series colours there are before they repeat. Beyond them a series differs in dash and marker: neither four nor
/// five divides seven, so no two of the first 28 are alike in all three.
pub(super) const SERIES: usize = 7;

/// Circle, square, triangle, diamond, and a triangle that points down.
pub(super) fn marker(series: usize, x: f64, y: f64, class: &str) -> String {
    match series % 5 {
        0 => format!("<circle class=\"dot {class}\" cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"3\"/>"),
        1 => {
            format!("<rect class=\"dot {class}\" x=\"{:.2}\" y=\"{:.2}\" width=\"6\" height=\"6\"/>", x - 3.0, y - 3.0)
        }
        2 => format!("<path class=\"dot {class}\" d=\"M{x:.2} {:.2}l4 7h-8z\"/>", y - 4.5),
        3 => format!("<path class=\"dot {class}\" d=\"M{x:.2} {:.2}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\"/>", y - 4.5),
        _ => format!("<path class=\"dot {class}\" d=\"M{x:.2} {:.2}l-4 -7h8z\"/>", y + 4.5),
    }
}

/// Rules that depend on the page's colours: ink, softer ink, lines, paper and the series. Each colour is written out, since
/// programs that open SVG files for print know no variables.
macro_rules! coloured {
    ($ink:literal, $soft:literal, $line:literal, $paper:literal, $c0:literal, $c1:literal, $c2:literal, $c3:literal, $c4:literal, $c5:literal) => {
        concat!(
            "svg.fc .paper{fill:", $paper, "}svg.fc text,svg.fc .value{fill:", $ink, "}svg.fc .tick{fill:", $soft, "}",
            "svg.fc .grid{stroke:", $line, "}svg.fc .axis,svg.fc .guide{stroke:", $soft, "}",
            "svg.fc .whisker{stroke:", $ink, "}svg.fc .count{fill:", $soft, "}svg.fc .edge{stroke:", $paper, "}",
            coloured!(series "0", $c0), coloured!(series "1", $c1), coloured!(series "2", $c2),
            coloured!(series "3", $c3), coloured!(series "4", $c4), coloured!(series "5", $c5),
            coloured!(series "6", $ink),
        )
    };
    (series $number:literal, $colour:literal) => {
        concat!(
            "svg.fc .line.s", $number, ",svg.fc .bar.again.s", $number, "{stroke:", $colour, "}svg.fc .dot.s", $number,
            ",svg.fc .bar.s", $number, ",svg.fc .band.s", $number, "{fill:", $colour, "}",
        )
    };
}

/// Every figure's style: for light paper, then what differs on dark pages and in print.
pub(crate) const STYLE: &str = concat!(
    "<style>svg.fc{font:12px system-ui,sans-serif}",
    coloured!(
        "#1b1b1b", "#5f5f5f", "#dcdcdc", "#ffffff", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
    ),
    "svg.fc .title{font-weight:600;font-size:13px}svg.fc .tick{font-size:11px}svg.fc .end{text-anchor:end}",
    "svg.fc .mid{text-anchor:middle}svg.fc .guide{stroke-dasharray:3 3}",
    "svg.fc .contour{stroke:#222;stroke-width:.8;fill:none;opacity:.7}svg.fc .contour.pale{stroke:#fff}",
    "svg.fc .ring{stroke:#fff;stroke-width:1}",
    "svg.fc .mark{fill:#111;stroke:#fff;stroke-width:3px;paint-order:stroke;font-weight:600}",
    "svg.fc .bar.again{fill-opacity:.3;stroke-width:1.5}svg.fc .edge{stroke-width:1}",
    "svg.fc .line{stroke-width:2;fill:none}svg.fc .band{opacity:.18}svg.fc .whisker{stroke-width:1.2;fill:none}",
    "svg.fc .count{opacity:.35}svg.fc .cell{shape-rendering:crispEdges}",
    "svg.fc .value{font-size:10px;text-anchor:middle}",
    "@media (prefers-color-scheme:dark){",
    coloured!(
        "#e8e8e8", "#a8a8a8", "#3a3a3a", "#16181b", "#56b4e9", "#f28e50", "#3fcf9f", "#e29bc4", "#f0b840", "#8fd0f5"
    ),
    "svg.fc .mark{fill:#111}}@media print{",
    coloured!(
        "#000000", "#444444", "#cccccc", "#ffffff", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
    ),
    "svg.fc .mark{fill:#111}}</style>\n",
);

/// Anchors of cividis from dark to light.
const CIVIDIS: [(f64, f64, f64); 9] = [
    (0.0, 34.0, 78.0),
    (20.0, 54.0, 109.0),
    (61.0, 77.0, 107.0),
    (91.0, 99.0, 110.0),
    (122.0, 121.0, 119.0),
    (155.0, 146.0, 120.0),
    (190.0, 172.0, 112.0),
    (225.0, 201.0, 94.0),
    (254.0, 232.0, 56.0),
];

/// The colour for a share between 0 (low, dark) and 1 (high, light), as `#rrggbb`; and whether dark text reads on it.
pub(crate) fn sequential(share: f64) -> (String, bool) {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let position = share * (CIVIDIS.len() - 1) as f64;
    let index = (position as usize).min(CIVIDIS.len() - 2);
    let t = position - index as f64;
    let (a, b) = (CIVIDIS[index], CIVIDIS[index + 1]);
    let mix = |a: f64, b: f64| (a + (b - a) * t).round() as u8;
    (format!("#{:02x}{:02x}{:02x}", mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2)), share > 0.5)
}
