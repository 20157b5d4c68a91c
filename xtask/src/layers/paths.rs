//! Paths of a Rust source that start at the crate root: `crate::x`, and `super::..::x` that climbs as far.

use std::collections::BTreeMap;

/// The first name after the crate root, and its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RootPath {
    pub(super) name: String,
    pub(super) line: usize,
}

/// All paths from the crate root in the text of a module that lies `depth` below it. Comments and strings do not count.
pub(super) fn paths_of(text: &str, depth: usize) -> Vec<RootPath> {
    let tokens = tokens(text);
    let word = |at: usize| tokens.get(at).map_or("", |token| token.0);
    let mut found = Vec::new();
    // Braces at which a module inside this file began.
    let (mut braces, mut inner) = (0, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        match word(at) {
            "{" => {
                if at >= 2 && word(at - 2) == "mod" {
                    inner.push(braces);
                }
                braces += 1;
            }
            "}" => {
                braces -= 1;
                inner.pop_if(|start| *start == braces);
            }
            "crate" if word(at + 1) == "::" => first_names(&tokens, at + 2, &mut found),
            "super" if at == 0 || word(at - 1) != "::" => {
                let steps = (at..).step_by(2).take_while(|&at| word(at) == "super" && word(at + 1) == "::").count();
                if steps == depth + inner.len() {
                    first_names(&tokens, at + 2 * steps, &mut found);
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Names that `lib.rs` re-exports at the root, each with the module it comes from.
pub(super) fn root_names(lib: &str) -> BTreeMap<String, String> {
    let tokens = tokens(lib);
    let mut names = BTreeMap::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.0 == "use") {
        let statement = tokens[at + 1..].iter().map(|token| token.0).take_while(|word| *word != ";");
        let mut words = statement.filter(|word| !matches!(*word, "crate" | "self" | "::" | "{" | "}" | ","));
        if let Some(module) = words.next() {
            names.extend(words.map(|name| (name.to_owned(), module.to_owned())));
        }
    }
    names
}

/// The name at `at`, or the first name of every entry of a group there.
fn first_names(tokens: &[(&str, usize)], at: usize, found: &mut Vec<RootPath>) {
    let mut push = |at: usize| {
        if let Some(&(name, line)) = tokens.get(at).filter(|token| is_name(token.0)) {
            found.push(RootPath { name: name.to_owned(), line });
        }
    };
    if tokens.get(at).is_none_or(|token| token.0 != "{") {
        return push(at);
    }
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.0 {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
        if depth == 1 && matches!(token.0, "{" | ",") {
            push(i + 1);
        }
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single signs, each with its line; without comments, strings and characters.
fn tokens(text: &str) -> Vec<(&str, usize)> {
    let bytes = text.as_bytes();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let length = match bytes[at] {
            b'/' if text[at..].starts_with("//") => text[at..].find('\n').unwrap_or(text.len() - at),
            b'/' if text[at..].starts_with("/*") => block_comment(&text[at..]),
            b'"' => string(&text[at..]),
            b'r' | b'b' if raw_string(&text[at..]).is_some() => raw_string(&text[at..]).unwrap_or(1),
            b'\'' => character(&text[at..]),
            c if c.is_ascii_alphanumeric() || c == b'_' => {
                let name = text[at..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len() - at);
                found.push((&text[at..at + name], line));
                name
            }
            b':' if text[at..].starts_with("::") => {
                found.push((&text[at..at + 2], line));
                2
            }
            _ => {
                let length = text[at..].chars().next().map_or(1, char::len_utf8);
                if !bytes[at].is_ascii_whitespace() {
                    found.push((&text[at..at + length], line));
                }
                length
            }
        };
        line += bytes[at..at + length].iter().filter(|&&b| b == b'\n').count();
        at += length;
    }
    found
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text.as_bytes()[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text.as_bytes()[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// The length of `r"..."`, `r#"..."#`, `br"..."`; `None` where none begins.
fn raw_string(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let body = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end).map_or(body.len(), |found| found + end.len());
    Some(text.len() - body.len() + length)
}

/// A character, or only the quote of a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            chars.find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1)
        }
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, depth: usize) -> Vec<String> {
        paths_of(text, depth).into_iter().map(|path| path.name).collect()
    }

    #[test]
    fn use_lines_groups_and_inline_paths_are_read() {
        let text = "use crate::{Error, data::{self, Sample}, rng};\npub(crate) fn f<'a>(x: &'a crate::eval::Run) {}\n";
        assert_eq!(names(text, 1), ["Error", "data", "rng", "eval"]);
        assert_eq!(paths_of(text, 1)[3].line, 2);
    }

    #[test]
    fn comments_strings_and_characters_are_not() {
        let text = "/// See [`crate::train`].\n/* crate::a /* crate::b */ */ let x = \"crate::c \\\" crate::d\";\n\
                    let y = r#\"crate::e\"#; let z = ['\"', '\\'', '\\u{7b}']; use crate::f;\n";
        assert_eq!(names(text, 1), ["f"]);
    }

    #[test]
    fn super_counts_when_it_climbs_to_the_root() {
        let text = "use super::super::model;\nuse super::sibling;\npub(super) struct A;\nmod tests {\n    use super::super::super::eval;\n    \
                    use super::super::sibling;\n}\nuse super::super::data;\n";
        assert_eq!(names(text, 2), ["model", "eval", "data"]);
    }

    #[test]
    fn the_root_re_exports_are_known() {
        let names = root_names("pub use error::{Error, Result};\npub use crate::facade::Model;\npub mod data;\n");
        assert_eq!(names["Result"], "error");
        assert_eq!(names["Model"], "facade");
        assert_eq!(names.len(), 3);
    }
}
