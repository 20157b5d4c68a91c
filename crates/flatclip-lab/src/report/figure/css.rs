//! The part of CSS that the style of figures uses: lists of an element's name or classes, and their properties.

use std::collections::BTreeMap;

/// Rules in their order; those of media queries are skipped, since paper is light.
pub(super) struct Sheet<'a>(Vec<Rule<'a>>);

struct Rule<'a> {
    /// Empty for every element.
    element: &'a str,
    classes: Vec<&'a str>,
    properties: &'a str,
}

impl<'a> Sheet<'a> {
    /// Rules as `svg.fc .a.b,svg.fc text{key:value;...}`.
    pub(super) fn parse(css: &'a str) -> Self {
        let (mut rules, mut rest) = (Vec::new(), css);
        while let Some((selectors, behind)) = rest.split_once('{') {
            if selectors.trim_start().starts_with('@') {
                rest = behind_block(behind);
                continue;
            }
            let (properties, behind) = behind.split_once('}').unwrap_or((behind, ""));
            rules.extend(selectors.split(',').map(|selector| {
                // All stand below `svg.fc`.
                let mut parts = selector.split_whitespace().last().unwrap_or_default().split('.');
                Rule { element: parts.next().unwrap_or_default(), classes: parts.collect(), properties }
            }));
            rest = behind;
        }
        Self(rules)
    }

    /// What holds for an element: more classes win, then the later rule.
    pub(super) fn properties(&self, element: &str, class: &str) -> BTreeMap<&'a str, &'a str> {
        let classes: Vec<&str> = class.split_whitespace().collect();
        let is_element = |rule: &Rule<'_>| rule.element.is_empty() || rule.element == element;
        let holds = |rule: &&Rule<'_>| is_element(rule) && rule.classes.iter().all(|class| classes.contains(class));
        let mut holding: Vec<&Rule<'_>> = self.0.iter().filter(holds).collect();
        holding.sort_by_key(|rule| rule.classes.len());
        holding.iter().flat_map(|rule| properties(rule.properties)).collect()
    }
}

/// `key:value;...`
pub(super) fn properties(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(';').filter_map(|entry| entry.split_once(':'))
}

/// The text after the end of a block whose beginning was read.
fn behind_block(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    end.map_or("", |at| &text[at + 1..])
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
