//! Mojibake: UTF-8 that somebody read in a one-byte encoding, turned back (`Ã©` to `é`).
//!
//! The decisions are those of ftfy 6.3 (Robyn Speer, Apache-2.0), written anew; its character classes and the code
//! pages are in `data/mojibake.txt`. A text is touched only when it shows a sequence of characters that hardly any
//! language writes ([`is_bad`]) and when its bytes in one of ten encodings are valid UTF-8; else runs inside of it
//! that look like UTF-8 are tried by themselves.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Undoes as many layers as there are.
pub(super) fn fix(mut text: String) -> String {
    while let Some(fixed) = fix_once(&text) {
        if fixed == text {
            break;
        }
        text = fixed;
    }
    text
}

/// What Windows-1252 means by a byte; undefined bytes stay themselves.
pub(super) fn windows_1252(byte: u8) -> char {
    if byte < 0x80 { char::from(byte) } else { TABLES.pages[1].high[usize::from(byte - 0x80)] }
}

/// A one-byte encoding: what its bytes 0x80.. mean.
struct Page {
    name: &'static str,
    high: Vec<char>,
}

impl Page {
    /// "Sloppy" pages give undefined bytes a meaning, and read U+FFFD as byte 0x1A: something that was lost.
    fn is_sloppy(&self) -> bool {
        self.name.starts_with("sloppy")
    }

    fn encode(&self, text: &str) -> Option<Vec<u8>> {
        let byte = |c: char| match c {
            '\u{fffd}' if self.is_sloppy() => Some(0x1a),
            '\x1a' if self.is_sloppy() => None,
            '\0'..='\x7f' => Some(c as u8),
            _ => self.high.iter().position(|&h| h == c).map(|i| 0x80 + i as u8),
        };
        text.chars().map(byte).collect()
    }
}

/// A set of characters.
#[derive(Default)]
struct Class(Vec<(char, char)>);

impl Class {
    fn has(&self, c: char) -> bool {
        self.0.iter().any(|&(low, high)| low <= c && c <= high)
    }
}

struct Tables {
    classes: BTreeMap<&'static str, Class>,
    pages: Vec<Page>,
    rules: Vec<Vec<Atom>>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let code = |hex: &str| u32::from_str_radix(hex, 16).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
    let mut tables = Tables { classes: BTreeMap::new(), pages: Vec::new(), rules: Vec::new() };
    for line in include_str!("data/mojibake.txt").lines() {
        let mut fields = line.split('\t');
        let (Some(kind), Some(name), Some(codes)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if kind == "page" {
            tables.pages.push(Page { name, high: codes.split(' ').map(code).collect() });
        } else {
            let range = |r: &str| r.split_once('-').map_or((code(r), code(r)), |(a, b)| (code(a), code(b)));
            tables.classes.insert(name, Class(codes.split(' ').map(range).collect()));
        }
    }
    tables.rules = RULES.iter().map(|rule| rule.iter().map(|atom| Atom::parse(atom)).collect()).collect();
    tables
});

/// One place of a rule: a character that is in one of the classes or in the list.
struct Atom {
    classes: Vec<&'static str>,
    list: Class,
    not: bool,
    word: bool,
}

impl Atom {
    /// `<name>` is a class, `a-z` a range, a leading `^` turns the set round, `\w` is any letter or digit.
    fn parse(text: &'static str) -> Self {
        let mut atom = Self { classes: Vec::new(), list: Class::default(), not: false, word: text == "\\w" };
        let mut rest = match text.strip_prefix('^') {
            Some(rest) => {
                atom.not = true;
                rest
            }
            None if atom.word => "",
            None => text,
        };
        while let Some(c) = rest.chars().next() {
            if let Some((name, after)) = rest.strip_prefix('<').and_then(|r| r.split_once('>')) {
                atom.classes.push(name);
                rest = after;
                continue;
            }
            let mut ahead = rest.chars();
            ahead.next();
            let high = if ahead.next() == Some('-') { ahead.next() } else { None };
            atom.list.0.push((c, high.unwrap_or(c)));
            rest = &rest[high.map_or(c.len_utf8(), |h| c.len_utf8() + 1 + h.len_utf8())..];
        }
        atom
    }

    fn has(&self, c: char, classes: &BTreeMap<&'static str, Class>) -> bool {
        if self.word {
            return c.is_alphanumeric() || c == '_';
        }
        let inside = self.list.has(c) || self.classes.iter().any(|name| classes.get(name).is_some_and(|k| k.has(c)));
        inside != self.not
    }
}

const ARABIC: &str = "<common><currency><bad><numeric><start_punctuation>ŸŠ®°µ»";
const SPACE: &str = "\t-\r\x1c- \u{85}\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

/// Sequences that hardly any language writes. Most are two classes that do not stand side by side in real text, the
/// rest are the commonest products of one encoding read as another.
const RULES: &[&[&str]] = &[
    &["<c1>"],
    &[
        "<bad><lower_accented><upper_accented><box><start_punctuation><end_punctuation><currency><numeric><law>",
        "<bad>",
    ],
    &["a-zA-Z", "<lower_common><upper_common>", "<bad>"],
    &["<bad>", "<lower_accented><upper_accented><box><start_punctuation><end_punctuation><currency><numeric><law>"],
    &["<lower_accented><lower_common><box><end_punctuation><currency><numeric>", "<upper_accented>"],
    &["<box><end_punctuation><currency><numeric>", "<lower_accented>"],
    &["<lower_accented><box><end_punctuation>", "<currency>"],
    &[SPACE, "<upper_accented>", "<currency>"],
    &["<upper_accented><box>", "<numeric><law>"],
    &["<lower_accented><upper_accented><box><currency><end_punctuation>", "<start_punctuation>", "<numeric>"],
    &["<lower_accented><upper_accented><currency><numeric><box><law>", "<end_punctuation>", "<start_punctuation>"],
    &["<currency><numeric><box>", "<start_punctuation>"],
    &["a-z", "<upper_accented>", "<start_punctuation><currency>"],
    &["<box>", "<kaomoji>"],
    &["<lower_accented><upper_accented><currency><numeric><start_punctuation><end_punctuation><law>", "<box>"],
    &["<box>", "<end_punctuation>"],
    &["<lower_accented><upper_accented>", "<start_punctuation><end_punctuation>", "\\w"],
    &["Œœ", "^A-Za-z"],
    &["<upper_accented>", "°"],
    // Windows-1252.
    &["ÂÃÎÐ", "€œŠš¢£Ÿž\u{a0}\u{ad}®©°·»<start_punctuation><end_punctuation>–—´"],
    &["×", "²³"],
    &["ØÙ", ARABIC, "ØÙ", ARABIC],
    &["à", "²µ¹¼½¾"],
    &["Ã", "\u{a0}¡"],
    &["a-z", "ÃÂ", " "],
    &["a-z", SPACE, "ÃÂ", " "],
    &["a-z.,?!<end_punctuation>", "Â", " <start_punctuation><end_punctuation>"],
    // Mac Roman.
    &["√", "±∂†≠®™´≤≥¥µø"],
    &["≈", "°¢"],
    &["‚", "Ä", "ìîïòôúùû†°¢π"],
    &["‚", "âó", "àä°ê"],
    // Windows-1251, Windows-1253, Windows-1257.
    &["в", "Ђ"],
    &["ВГРС", "<c1><bad><start_punctuation><end_punctuation><currency>°µ", "ВГРС"],
    &["Г", "ў", "В", "Ђ", "В", "^\n", "A-Za-z "],
    &["β", "€", "™\u{a0}Ά\u{ad}®°"],
    &["ΒΓΞΟ", "<c1><bad><start_punctuation><end_punctuation><currency>°", "ΒΓΞΟ"],
    &["ā", "€"],
];

/// True when the text shows a sequence that hardly any language writes.
fn is_bad(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let fits = |rule: &[Atom], at: usize| {
        chars.len() - at >= rule.len() && rule.iter().zip(&chars[at..]).all(|(atom, &c)| atom.has(c, &TABLES.classes))
    };
    let start = matches!(chars.as_slice(), ['Ã' | 'Â', ' ', ..]);
    start || (0..chars.len()).any(|at| TABLES.rules.iter().any(|rule| fits(rule, at)))
}

/// One layer; `None` when there is nothing to fix.
fn fix_once(text: &str) -> Option<String> {
    if text.is_ascii() || !is_bad(text) {
        return None;
    }
    for page in &TABLES.pages {
        if let Some(fixed) = page.encode(text).and_then(|bytes| decode(bytes, page)) {
            return Some(fixed);
        }
    }
    let fixed = fix_runs(text);
    if fixed != text {
        return Some(fixed);
    }
    // What is left in Latin-1 with C1 controls was meant as Windows-1252; bytes that it does not define stay.
    let is_latin = text.chars().all(|c| c <= '\u{ff}');
    let is_c1 = |c: char| ('\u{80}'..='\u{9f}').contains(&c);
    let defined = |c: char| !matches!(c, '\u{81}' | '\u{8d}' | '\u{8f}' | '\u{90}' | '\u{9d}');
    if (is_latin && text.chars().all(defined)) || text.contains(is_c1) {
        return Some(text.chars().map(|c| if is_c1(c) { windows_1252(c as u8) } else { c }).collect());
    }
    None
}

/// The bytes as UTF-8, after what spaces and question marks have destroyed is put back.
fn decode(mut bytes: Vec<u8>, page: &Page) -> Option<String> {
    if page.name != "macroman" && (0..bytes.len()).any(|at| spaced_sequence(&bytes[at..]).is_some()) {
        bytes = restore_no_break_spaces(&bytes);
    }
    if page.is_sloppy() {
        bytes = replace_lost(&bytes);
    }
    if bytes.contains(&0xed) || bytes.contains(&0xc0) {
        bytes = plain_utf8(&bytes);
    }
    String::from_utf8(bytes).ok()
}

/// Length of a UTF-8 sequence whose byte 0xA0 became a space, if there is one at the start. Only lead bytes of likely
/// characters count.
fn spaced_sequence(bytes: &[u8]) -> Option<usize> {
    let follow = |b: &u8| matches!(b, 0x80..=0x84 | 0x86..=0x9f | 0xa1..=0xbf);
    let any = |b: &u8| (0x80..=0xbf).contains(b);
    match bytes {
        [0xc2 | 0xc3 | 0xc5 | 0xce | 0xd0 | 0xd9, b' ', ..] => Some(2),
        [0xe2 | 0xe3, b' ', b, ..] if follow(b) => Some(3),
        [0xe0..=0xe3, b, b' ', ..] if follow(b) => Some(3),
        [0xf0, b' ', b, c, ..] | [0xf0, b, b' ', c, ..] | [0xf0, b, c, b' ', ..] if any(b) && any(c) => Some(4),
        _ => None,
    }
}

fn restore_no_break_spaces(bytes: &[u8]) -> Vec<u8> {
    // "Ã la mode": the space is a word's end as well, except in Portuguese contractions of "à".
    let mut words = Vec::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        words.push(byte);
        let after_a = byte == 0xc3 && bytes.get(at + 1) == Some(&b' ');
        let keeps: [&[u8]; 5] = [b" ", b"quele", b"quela", b"quilo", b"s "];
        if after_a && !keeps.iter().any(|k| bytes[at + 2..].starts_with(k)) {
            words.push(0xa0);
        }
    }
    let mut at = 0;
    while at < words.len() {
        let len = spaced_sequence(&words[at..]).unwrap_or(0);
        for byte in &mut words[at..at + len] {
            *byte = if *byte == b' ' { 0xa0 } else { *byte };
        }
        at += len.max(1);
    }
    words
}

/// Replaces sequences of which a byte is lost by U+FFFD.
fn replace_lost(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match lost_sequence(&bytes[at..]) {
            Some(len) => {
                out.extend("\u{fffd}".bytes());
                at += len;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

fn lost_sequence(bytes: &[u8]) -> Option<usize> {
    let lost = |b: u8| b == 0x1a || b == b'?';
    let follow = |b: u8| b == 0x1a || (0x80..=0xbf).contains(&b);
    // Exactly one place may hold a question mark; it or another holds what is lost.
    let damaged = |tail: &[u8]| {
        (0..tail.len()).any(|i| lost(tail[i]) && tail.iter().enumerate().all(|(j, &b)| j == i || follow(b)))
    };
    let surrogate = |t: &[u8]| {
        (0xa0..=0xaf).contains(&t[1])
            && t[3] == 0xed
            && (0xb0..=0xbf).contains(&t[4])
            && ((lost(t[2]) && (lost(t[5]) || follow(t[5]))) || (lost(t[5]) && (lost(t[2]) || follow(t[2]))))
    };
    let fits = |n: usize| bytes.len() >= n;
    match *bytes.first()? {
        0xc2..=0xdf if fits(2) && (bytes[1] == 0x1a || (bytes[0] <= 0xc3 && bytes[1] == b'?')) => Some(2),
        0xed if fits(6) && surrogate(&bytes[..6]) => Some(6),
        0xe0..=0xef if fits(3) && damaged(&bytes[1..3]) => Some(3),
        0xf0..=0xf4 if fits(4) && damaged(&bytes[1..4]) => Some(4),
        0x1a => Some(1),
        _ => None,
    }
}

/// CESU-8 pairs of surrogates become one character, Java's two-byte zero becomes a zero.
fn plain_utf8(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at..] {
            [0xc0, 0x80, ..] => {
                out.push(0);
                at += 2;
            }
            [0xed, a @ 0xa0..=0xaf, b @ 0x80..=0xbf, 0xed, c @ 0xb0..=0xbf, d @ 0x80..=0xbf, ..] => {
                let bits = |b: u8, mask: u8| u32::from(b & mask);
                let code =
                    0x10000 + (bits(a, 0x0f) << 16) + (bits(b, 0x3f) << 10) + (bits(c, 0x0f) << 6) + bits(d, 0x3f);
                let c = char::from_u32(code).unwrap_or('\u{fffd}');
                out.extend(c.encode_utf8(&mut [0; 4]).bytes());
                at += 6;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// Mends runs of characters that look like UTF-8 in a text that is otherwise sound.
fn fix_runs(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let class = |name: &str, c: char| TABLES.classes.get(name).is_some_and(|k| k.has(c));
    let sequence = |at: usize| {
        let leads = [("utf8_first_of_2", 1), ("utf8_first_of_3", 2), ("utf8_first_of_4", 3)];
        let tail =
            |n: usize| chars.get(at + 1..at + 1 + n).is_some_and(|t| t.iter().all(|&c| class("utf8_continuation", c)));
        leads.iter().find(|&&(lead, n)| chars.get(at).is_some_and(|&c| class(lead, c)) && tail(n)).map(|&(_, n)| n + 1)
    };
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let mut end = at;
        if at == 0 || !class("utf8_continuation_strict", chars[at - 1]) {
            while let Some(len) = sequence(end) {
                end += len;
            }
        }
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        let run: String = chars[at..end].iter().collect();
        let whole = end - at == chars.len();
        out.push_str(&if !whole && is_bad(&run) { fix(run) } else { run });
        at = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(text: &str) -> String {
        fix(text.to_owned())
    }

    #[test]
    fn one_and_two_layers_are_undone() {
        assert_eq!(fixed("âœ” No problems"), "✔ No problems");
        assert_eq!(fixed("ÃƒÂ©"), "é");
        assert_eq!(fixed("l’humanitÃ©"), "l’humanité");
    }

    #[test]
    fn other_encodings_are_known() {
        assert_eq!(fixed("РїСЂРёРІРµС‚ вЂ” РјРёСЂ"), "привет — мир");
        assert_eq!(fixed("‚Äúquoted‚Äù"), "“quoted”");
    }

    #[test]
    fn lost_bytes_and_spaces_are_put_back() {
        assert_eq!(fixed("â€œ like this â€\u{fffd}"), "“ like this \u{fffd}");
        assert_eq!(fixed("voilÃ le travail"), "voilà le travail");
    }

    #[test]
    fn sound_text_is_left_alone() {
        for text in
            ["naïve café", "ΑΒΓ αβγ ς", "Über die Straße", "日本語", "½ cup – 20 °C", "«Привет»", "Ünïcödé", "£5 ± 3"]
        {
            assert_eq!(fixed(text), text);
        }
    }
}
