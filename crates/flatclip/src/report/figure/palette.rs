//! Colours. Series: Okabe and Ito's set, made for every kind of colour vision. Heat maps: cividis, even in brightness.

/// Dashes, so that lines also differ without colour.
pub(super) const DASHES: [&str; 4] = ["", "6 3", "2 2", "8 3 2 3"];

/// How many series colours there are before they repeat.
pub(super) const SERIES: usize = 7;

/// Every figure's style: variables for light paper, print and dark pages.
pub(crate) const STYLE: &str = "<style>\
svg.fc{--ink:#1b1b1b;--soft:#6b6b6b;--line:#dcdcdc;--paper:#ffffff;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--c6:#1b1b1b;\
font:12px system-ui,sans-serif}\
@media (prefers-color-scheme:dark){svg.fc{--ink:#e8e8e8;--soft:#a8a8a8;--line:#3a3a3a;--paper:#16181b;--c0:#56b4e9;--c1:#f28e50;--c2:#3fcf9f;--c3:#e29bc4;--c4:#f0b840;--c5:#8fd0f5;--c6:#e8e8e8}}\
@media print{svg.fc{--ink:#000;--soft:#444;--line:#ccc;--paper:#fff}}\
svg.fc .paper{fill:var(--paper)}svg.fc text{fill:var(--ink)}svg.fc .title{font-weight:600;font-size:13px}svg.fc .tick{fill:var(--soft);font-size:11px}\
svg.fc .end{text-anchor:end}svg.fc .mid{text-anchor:middle}svg.fc .grid{stroke:var(--line)}svg.fc .axis{stroke:var(--soft)}\
svg.fc .guide{stroke:var(--soft);stroke-dasharray:3 3}svg.fc .contour{stroke:#222;stroke-width:.8;fill:none;opacity:.7}svg.fc .contour.pale{stroke:#fff}\
svg.fc .ring{stroke:#fff;stroke-width:1}svg.fc .mark{fill:#111;stroke:#fff;stroke-width:3px;paint-order:stroke;font-weight:600}\
svg.fc .s0{--c:var(--c0)}svg.fc .s1{--c:var(--c1)}svg.fc .s2{--c:var(--c2)}svg.fc .s3{--c:var(--c3)}svg.fc .s4{--c:var(--c4)}svg.fc .s5{--c:var(--c5)}svg.fc .s6{--c:var(--c6)}\
svg.fc .line{stroke:var(--c);stroke-width:2;fill:none}svg.fc .dot,svg.fc .bar{fill:var(--c)}svg.fc .band{fill:var(--c);opacity:.18}\
svg.fc .whisker{stroke:var(--ink);stroke-width:1.2;fill:none}svg.fc .count{fill:var(--soft);opacity:.35}\
svg.fc .cell{shape-rendering:crispEdges}svg.fc .value{font-size:10px;text-anchor:middle}\
</style>\n";

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
