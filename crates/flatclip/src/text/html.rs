//! HTML character references, as Python's `html.unescape` and as the stricter form of ftfy read them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// `name` (most with a final semicolon) to text: the HTML5 table.
static ENTITIES: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let decode =
        |codes: &str| codes.split(' ').filter_map(|c| char::from_u32(u32::from_str_radix(c, 16).ok()?)).collect();
    let lines = include_str!("data/html_entities.txt").lines().filter_map(|line| line.split_once('\t'));
    lines.map(|(name, codes)| (name, decode(codes))).collect()
});

/// Longest run of characters after `&` that can be a name.
const NAME_LIMIT: usize = 32;

/// Replaces every character reference, also unterminated ones (`&lt b`), as the HTML5 rules say.
pub(super) fn unescape(text: &str) -> String {
    replace_references(text, reference)
}

/// Replaces only terminated references, and those of Latin letters that were turned to capitals (`&EACUTE;`).
pub(super) fn unescape_terminated(text: &str) -> String {
    replace_references(text, terminated_reference)
}

/// Walks over the ampersands; `read` returns the replacement and the number of bytes it replaces.
fn replace_references(text: &str, read: fn(&str) -> Option<(String, usize)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (new, used) = read(rest).unwrap_or_else(|| ("&".to_owned(), 1));
        out.push_str(&new);
        rest = &rest[used..];
    }
    out.push_str(rest);
    out
}

fn reference(text: &str) -> Option<(String, usize)> {
    let body = &text[1..];
    if let Some(number) = body.strip_prefix('#') {
        let (digits, radix, mark) = match number.strip_prefix(['x', 'X']) {
            Some(hex) => (hex, 16, 3),
            None => (number, 10, 2),
        };
        let len = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
        let digits = digits.get(..len).filter(|d| !d.is_empty())?;
        let semicolon = usize::from(text[mark + len..].starts_with(';'));
        return Some((numeric(digits, radix), mark + len + semicolon));
    }
    let is_end = |c: char| matches!(c, '\t' | '\n' | '\x0c' | ' ' | '<' | '&' | '#' | ';');
    let name: &str = match body.char_indices().enumerate().find(|&(n, (_, c))| n == NAME_LIMIT || is_end(c)) {
        Some((_, (end, _))) => &body[..end],
        None => body,
    };
    if name.is_empty() {
        return None;
    }
    if body[name.len()..].starts_with(';')
        && let Some(found) = ENTITIES.get(&body[..=name.len()])
    {
        return Some((found.clone(), name.len() + 2));
    }
    // The longest prefix that is a name without semicolon; names have at least two letters.
    let ends = name.char_indices().map(|(i, _)| i).chain([name.len()]).filter(|&i| i >= 2);
    ends.rev().find_map(|end| Some((ENTITIES.get(&name[..end])?.clone(), end + 1)))
}

fn terminated_reference(text: &str) -> Option<(String, usize)> {
    let body = text[1..].strip_prefix('#').unwrap_or(&text[1..]);
    let len = body.find(|c: char| !c.is_ascii_alphanumeric()).filter(|&n| (1..=24).contains(&n))?;
    if !body[len..].starts_with(';') {
        return None;
    }
    let used = text.len() - body.len() + len + 1;
    let whole = &text[..used];
    if whole.starts_with("&#") {
        let new = unescape(whole);
        return (!new.contains(';')).then_some((new, used));
    }
    let name = &whole[1..];
    if let Some(found) = ENTITIES.get(name) {
        return Some((found.clone(), used));
    }
    let lower = name.to_ascii_lowercase();
    let capital = name == name.to_ascii_uppercase() && unescape(whole) == whole;
    capital.then(|| ENTITIES.get(lower.as_str()))?.map(|found| (found.to_uppercase(), used))
}

/// The character of a numeric reference: Windows-1252 for the C1 range, nothing for what is not a character.
fn numeric(digits: &str, radix: u32) -> String {
    let code = u32::from_str_radix(digits, radix).unwrap_or(u32::MAX);
    match code {
        0 => "\u{fffd}".into(),
        0x80..=0x9f => super::mojibake::windows_1252(code as u8).into(),
        0x01..=0x08 | 0x0b | 0x0e..=0x1f | 0x7f | 0xfdd0..=0xfdef => String::new(),
        _ if code <= 0x10ffff && code & 0xfffe == 0xfffe => String::new(),
        _ => char::from_u32(code).unwrap_or('\u{fffd}').into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_html5_and_ftfy_read_them() {
        assert_eq!(unescape("a &lt b"), "a < b");
        assert_eq!(unescape("&notit; &notin; &unknown;"), "¬it; ∉ &unknown;");
        let numbers = "&#65;&#x42;&#X43 &#128;&#0;&#xD800;&#99999999999;&#1;.";
        assert_eq!(unescape(numbers), "ABC €\u{fffd}\u{fffd}\u{fffd}.");
        assert_eq!(unescape("&#; &#x; & &;"), "&#; &#x; & &;");
        assert_eq!(unescape_terminated("a &lt b &lt;"), "a &lt b <");
        assert_eq!(unescape_terminated("P&EACUTE;REZ &nTILDE; &SZLIG;"), "PÉREZ &nTILDE; SS");
    }
}
