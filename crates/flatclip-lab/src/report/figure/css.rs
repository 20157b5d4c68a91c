//! The part of CSS that the style of figures uses: lists of an element's name or classes, and their properties.

use std::collections::BTreeMap;

/// Rules in their order; those of media queries are skipped, since paper is light.
pub(super) struct Sheet(Vec<Rule>);

struct Rule {
    element: Option<String>,
    classes: Vec<String>,
    properties: Vec<(String, String)>,
}

impl Sheet {
    /// Rules as `svg.fc .a.b,svg.fc text{key:value;...}`.
    pub(super) fn parse(css: &str) -> Self {
        let (mut rules, mut rest) = (Vec::new(), css);
        while let Some((selectors, behind)) = rest.split_once('{') {
            if selectors.trim_start().starts_with('@') {
                rest = behind_block(behind);
                continue;
            }
            let (body, behind) = behind.split_once('}').unwrap_or((behind, ""));
            let property =
                |text: &str| text.split_once(':').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
            let properties: Vec<(String, String)> = body.split(';').filter_map(property).collect();
            rules.extend(selectors.split(',').map(|selector| Rule::new(selector, &properties)));
            rest = behind;
        }
        Self(rules)
    }

    /// What holds for an element: more classes win, then the later rule.
    pub(super) fn properties(&self, element: &str, class: &str) -> BTreeMap<&str, &str> {
        let classes: Vec<&str> = class.split_whitespace().collect();
        let mut holding: Vec<&Rule> = self.0.iter().filter(|rule| rule.holds(element, &classes)).collect();
        holding.sort_by_key(|rule| rule.classes.len());
        holding.iter().flat_map(|rule| rule.properties.iter().map(|(k, v)| (k.as_str(), v.as_str()))).collect()
    }
}

impl Rule {
    fn new(selector: &str, properties: &[(String, String)]) -> Self {
        // All stand below `svg.fc`.
        let last = selector.split_whitespace().last().unwrap_or_default();
        let mut parts = last.split('.');
        let element = parts.next().filter(|name| !name.is_empty()).map(str::to_owned);
        Self { element, classes: parts.map(str::to_owned).collect(), properties: properties.to_vec() }
    }

    fn holds(&self, element: &str, classes: &[&str]) -> bool {
        self.element.as_deref().is_none_or(|name| name == element)
            && self.classes.iter().all(|class| classes.contains(&class.as_str()))
    }
}

/// The text after the end of a block whose beginning was read.
fn behind_block(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_rule_wins_and_media_are_left_out() {
        let sheet = Sheet::parse(
            "svg.fc text{fill:#111}svg.fc .a.b,svg.fc .c{fill:red;stroke:none}svg.fc .a{fill:blue}@media x{svg.fc .a{fill:pink}}svg.fc .d{opacity:.5}",
        );
        assert_eq!(sheet.properties("text", "")["fill"], "#111");
        assert_eq!(sheet.properties("rect", "b a")["fill"], "red");
        assert_eq!(sheet.properties("rect", "a")["fill"], "blue");
        assert_eq!(sheet.properties("rect", "d")["opacity"], ".5");
        assert!(sheet.properties("rect", "").is_empty());
    }
}
