//! One self-contained HTML page: tables, figures, provenance; no script, no other file.

use super::figure::{Figure, STYLE as STYLE_OF_FIGURES};
use super::rows::distinct;
use super::table::html;
use super::{Cell, Run, Table};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1b1b;--soft:#666;--line:#ddd;--paper:#fff;--mark:#b3261e;--tint:#f4f6f8;--cue:rgba(0,60,120,.45)}\
@media (prefers-color-scheme:dark){:root{--ink:#e8e8e8;--soft:#a8a8a8;--line:#3a3a3a;--paper:#16181b;--mark:#ff8a80;--tint:#1f2226;--cue:rgba(140,200,255,.5)}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1180px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}\
nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.92rem}nav a{color:inherit}\
details{margin-top:1.4rem;border-top:1px solid var(--line)}summary{font-size:1.05rem;font-weight:600;padding:.5rem 0;cursor:pointer}\
figure{margin:1rem 0}figure.table>div{overflow-x:auto;background:linear-gradient(90deg,var(--paper) 40%,transparent) 0 0/2.5rem 100% no-repeat local,\
linear-gradient(270deg,var(--paper) 40%,transparent) 100% 0/2.5rem 100% no-repeat local,\
linear-gradient(90deg,var(--cue),transparent) 0 0/1rem 100% no-repeat scroll,linear-gradient(270deg,var(--cue),transparent) 100% 0/1rem 100% no-repeat scroll}figcaption{font-weight:600;margin-bottom:.3rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\
th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right}td.best{font-weight:700}td.flagged{color:var(--mark)}td.flagged::after{content:' !'}\
.note{color:var(--soft);font-size:.88rem;margin:.2rem 0}.figures{display:flex;flex-wrap:wrap;gap:1rem}.figures svg,figure img{max-width:100%;height:auto}\
@media (max-width:640px){body{font-size:14px;margin:1rem auto}th,td{padding:.2rem .35rem}td,th{white-space:nowrap}\
td:first-child,th:first-child{position:sticky;left:0;z-index:1;background:var(--paper);white-space:normal;overflow-wrap:anywhere;min-width:7.5em;max-width:42vw;\
box-shadow:inset -1px -1px 0 var(--line)}.wide figcaption::after,.figures .wide::before{content:'scroll sideways →';float:right;font-weight:400;font-size:.85rem;color:var(--soft)}\
.figures figure{overflow-x:auto;max-width:100%}.figures .wide::before{float:none;display:block;text-align:right;position:sticky;left:0}.figures .wide svg{max-width:none}}\
@media print{body{max-width:none;margin:0}h2{break-after:avoid}figure{break-inside:avoid}}";

/// A heading and its content.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// A sentence or two; empty for none. An empty line begins a new paragraph.
    pub text: String,
    /// Tables, in order.
    pub tables: Vec<Table>,
    /// Figures, in order.
    pub figures: Vec<Figure>,
    /// Shut until it is opened: what is looked up and not read.
    pub folded: bool,
    /// Raster images: the caption above each, and its `data:` address.
    pub images: Vec<(String, String)>,
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The title.
    pub title: String,
    /// A sentence or two.
    pub text: String,
    /// Its parts.
    pub sections: Vec<Section>,
}

impl Section {
    pub(crate) fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), text: text.into(), ..Self::default() }
    }
}

impl Page {
    /// The whole document.
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><link rel=\"icon\" href=\"data:,\">\
             <title>{0}</title><style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n",
            html(&self.title)
        );
        if !self.text.is_empty() {
            out.push_str(&format!("<p>{}</p>\n", html(&self.text)));
        }
        out.push_str(&self.contents());
        for (number, section) in self.sections.iter().enumerate() {
            let title = html(&section.title);
            out.push_str(&match section.folded {
                true => format!("<details id=\"s{number}\"><summary>{title}</summary>\n"),
                false => format!("<h2 id=\"s{number}\">{title}</h2>\n"),
            });
            for paragraph in section.text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
                out.push_str(&format!("<p>{}</p>\n", html(paragraph)));
            }
            section.tables.iter().for_each(|table| out.push_str(&table.to_html()));
            for (caption, address) in &section.images {
                let (caption, address) = (html(caption), html(address));
                out.push_str(&format!(
                    "<figure><figcaption>{caption}</figcaption><img alt=\"{caption}\" src=\"{address}\"></figure>\n"
                ));
            }
            if !section.figures.is_empty() {
                // On a phone the text of a wider figure would be too small: it is scrolled.
                let class = |f: &Figure| if f.full_size().0 > 450.0 { " class=\"wide\"" } else { "" };
                let svg = |f: &Figure| format!("<figure{}>{}</figure>\n", class(f), f.to_svg());
                let figures: String = section.figures.iter().map(svg).collect();
                out.push_str(&format!("<div class=\"figures\">\n{figures}</div>\n"));
            }
            if section.folded {
                out.push_str("</details>\n");
            }
        }
        // All figures share one style.
        if let Some((before, after)) = out.split_once(STYLE_OF_FIGURES) {
            out = format!("{before}{STYLE_OF_FIGURES}{}", after.replace(STYLE_OF_FIGURES, ""));
        }
        out.push_str(&format!("<p class=\"note\">flatclip {}</p>\n</body></html>\n", env!("CARGO_PKG_VERSION")));
        out
    }

    /// A list of the sections, where there is something to choose from.
    fn contents(&self) -> String {
        if self.sections.len() < 3 {
            return String::new();
        }
        let entry =
            |(number, section): (usize, &Section)| format!("<a href=\"#s{number}\">{}</a>", html(&section.title));
        let entries: Vec<String> = self.sections.iter().enumerate().map(entry).collect();
        format!("<nav>{}</nav>\n", entries.join(" "))
    }

    /// What makes the runs of a page comparable, as a section: what is the same for all in a sentence, what differs in a table.
    pub fn provenance(runs: &[Run]) -> Section {
        let options =
            |run: &Run| run.config.options.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>();
        let order = |seed: Option<u64>| seed.map_or("data set's".into(), |seed| format!("shuffled by {seed}"));
        let table = Table::of("Provenance", runs)
            .column("run", |run| Cell::text(run.path.display().to_string()))
            .column("data", |run| Cell::text(format!("{} ({})", run.provenance.dataset, run.config.split)))
            .column("backbone", |run| Cell::text(&run.provenance.backbone))
            .column("weights", |run| Cell::text(run.provenance.weights.chars().take(16).collect::<String>()))
            .column("prompt", |run| Cell::text(&run.provenance.prompt))
            .column("text features", |run| Cell::text(&run.provenance.text_features))
            .column("class names", |Run { provenance: p, .. }| {
                Cell::text(format!("{} ({} classes)", p.class_names, p.classes))
            })
            .column("views", |run| Cell::text(run.config.views.to_string()))
            .column("seed", |run| Cell::text(run.config.seed.to_string()))
            .column("order", |run| Cell::text(order(run.config.order_seed)))
            .column("precision", |run| Cell::text(&run.config.precision))
            .column("decoder", |run| Cell::text(&run.provenance.decoder))
            .column("ISA", |run| Cell::text(&run.provenance.isa))
            .column("stream", |run| Cell::text(&run.provenance.stream))
            .column("compat", |run| Cell::text(run.config.compat.join(", ")))
            .column("options", |run| Cell::text(options(run).join(", ")))
            .table();
        let warnings = runs.iter().flat_map(|Run { provenance: p, .. }| {
            p.notes.iter().filter(|note| note.warning).map(|note| format!("{}: {}", p.dataset, note.text))
        });
        let (text, mut table) = table.split_common();
        table.notes = distinct(&warnings.collect::<Vec<_>>());
        Section { tables: vec![table], folded: true, ..Section::new("Provenance", text) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::Axis;
    use super::*;

    /// What a phone shows was looked at; here only that the rules and the mark of wide tables stay in the page.
    #[test]
    fn wide_tables_scroll_beside_their_first_column_and_say_so() {
        let narrow = Table::new("narrow", ["method", "top-1"]);
        let wide = Table::new("wide", ["prompt + method", "data", "seed", "samples", "top-1", "95 %"]);
        let section = Section { tables: vec![narrow, wide], ..Section::default() };
        let page = Page { title: "t".into(), sections: vec![section], ..Page::default() }.to_html();
        assert!(page.contains("<figure class=\"table\"><figcaption>narrow"), "{page}");
        assert!(page.contains("<figure class=\"table wide\"><figcaption>wide"), "{page}");
        let phone = page.split("max-width:640px").nth(1).unwrap();
        assert!(phone.contains("td:first-child,th:first-child{position:sticky;left:0"), "{phone}");
        assert!(phone.contains(".wide figcaption::after,.figures .wide::before{content:'scroll sideways"), "{phone}");
    }

    #[test]
    fn the_page_stands_alone_and_escapes_names() {
        let section = Section {
            tables: vec![Table::new("t", ["x"])],
            figures: vec![Figure::new("f", Axis::new("x"), Axis::new("y"))],
            ..Section::new("a < b", "")
        };
        let page = Page { title: "<script>".into(), sections: vec![section], ..Page::default() }.to_html();
        assert!(page.contains("&lt;script&gt;") && page.contains("a &lt; b") && page.contains("<svg"));
        // The empty icon keeps browsers from asking for one.
        let page = page.replace("href=\"data:,\"", "");
        let page = page.replace("href=\"#", "");
        for outside in ["<script", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
