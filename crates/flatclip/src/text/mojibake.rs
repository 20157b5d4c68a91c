//! Mojibake: UTF-8 that somebody read in a one-byte encoding, turned back (`Ã©` to `é`).
//!
//! The decisions are those of ftfy 6.3 (Robyn Speer, Apache-2.0), written anew; its character classes and the code
//! pages are in `data/mojibake.txt`. A text is touched only when it shows a sequence of characters that hardly any
//! language writes ([`RULES`]) and when its bytes in one of ten encodings are valid UTF-8; else runs inside of it
//! that look like UTF-8 are tried by themselves.

use regex::bytes::{Captures, Regex as BytesRegex};
use regex::{Error, Regex};
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

struct Tables {
    pages: Vec<Page>,
    /// Sequences of [`RULES`], or `Ã ` and `Â ` at the start.
    bad: Regex,
    /// Characters that look like UTF-8 read in a one-byte encoding.
    run: Regex,
    /// Continuation bytes that do not occur in other text.
    strict: Regex,
    /// UTF-8 whose byte 0xA0 became a space; only with lead bytes of likely characters.
    spaced: BytesRegex,
    /// UTF-8 of which a byte is lost: 0x1A, or one question mark.
    lost: BytesRegex,
    /// Java's two-byte zero, and CESU-8 pairs of surrogates.
    java: BytesRegex,
}

static TABLES: LazyLock<Tables> =
    LazyLock::new(|| Tables::new().expect("the table and the patterns are constants, and every test uses them"));

impl Tables {
    fn new() -> Result<Self, Error> {
        let code = |hex: &str| u32::from_str_radix(hex, 16).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
        let (mut pages, mut classes) = (Vec::new(), BTreeMap::new());
        for line in include_str!("data/mojibake.txt").lines() {
            let mut fields = line.split('\t');
            let (Some(kind), Some(name), Some(codes)) = (fields.next(), fields.next(), fields.next()) else { continue };
            if kind == "page" {
                pages.push(Page { name, high: codes.split(' ').map(code).collect() });
            } else {
                let range = |range: &str| format!(r"\x{{{}}}", range.replace('-', r"}-\x{"));
                classes.insert(format!("<{name}>"), codes.split(' ').map(range).collect::<String>());
            }
        }
        let class =
            |atom: &&str| classes.iter().fold(format!("[{atom}]"), |set, (name, codes)| set.replace(name, codes));
        let rules = RULES.iter().map(|rule| rule.iter().map(class).collect::<String>()).collect::<Vec<_>>().join("|");
        let [first2, first3, first4, next, strict] =
            ["first_of_2", "first_of_3", "first_of_4", "continuation", "continuation_strict"]
                .map(|name| class(&format!("<utf8_{name}>").as_str()));
        Ok(Self {
            pages,
            bad: Regex::new(&format!("^[ÃÂ] |{rules}"))?,
            run: Regex::new(&format!("(?:{first2}{next}|{first3}{next}{{2}}|{first4}{next}{{3}})+"))?,
            strict: Regex::new(&strict)?,
            spaced: BytesRegex::new(
                r"(?x-u) [\xc2\xc3\xc5\xce\xd0\xd9]\x20 | [\xe2\xe3]\x20[\x80-\x84\x86-\x9f\xa1-\xbf]
                | [\xe0-\xe3][\x80-\x84\x86-\x9f\xa1-\xbf]\x20
                | \xf0(?: \x20[\x80-\xbf]{2} | [\x80-\xbf]\x20[\x80-\xbf] | [\x80-\xbf]{2}\x20 )",
            )?,
            lost: BytesRegex::new(
                r"(?x-u) [\xc2-\xdf]\x1a | [\xc2\xc3]\?
                | \xed[\xa0-\xaf](?: [\x1a?]\xed[\xb0-\xbf][\x1a?\x80-\xbf] | [\x1a?\x80-\xbf]\xed[\xb0-\xbf][\x1a?] )
                | [\xe0-\xef](?: [\x1a?][\x1a\x80-\xbf] | [\x1a\x80-\xbf][\x1a?] )
                | [\xf0-\xf4](?: [\x1a?][\x1a\x80-\xbf]{2} | [\x1a\x80-\xbf][\x1a?][\x1a\x80-\xbf]
                                | [\x1a\x80-\xbf]{2}[\x1a?] )
                | \x1a",
            )?,
            java: BytesRegex::new(r"(?-u)\xc0\x80|\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")?,
        })
    }
}

const ARABIC: &str = "<common><currency><bad><numeric><start_punctuation>ŸŠ®°µ»";
const SPACE: &str = "\t-\r\x1c- \u{85}\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

/// Sequences that hardly any language writes: characters of regular expressions, with `<name>` for a class of the table. Most are two classes that do not stand side by side in real text, the
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
    &["<lower_accented><upper_accented>", "<start_punctuation><end_punctuation>", "\\p{Alphabetic}\\p{N}_"],
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

/// One layer; `None` when there is nothing to fix.
fn fix_once(text: &str) -> Option<String> {
    if text.is_ascii() || !TABLES.bad.is_match(text) {
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
    let tables = &*TABLES;
    if page.name != "macroman" && tables.spaced.is_match(&bytes) {
        bytes = restore_no_break_spaces(&bytes);
    }
    if page.is_sloppy() {
        bytes = tables.lost.replace_all(&bytes, "\u{fffd}".as_bytes()).into_owned();
    }
    String::from_utf8(tables.java.replace_all(&bytes, plain_utf8).into_owned()).ok()
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
    let spaced = |found: &Captures<'_>| found[0].iter().map(|&b| if b == b' ' { 0xa0 } else { b }).collect::<Vec<u8>>();
    TABLES.spaced.replace_all(&words, spaced).into_owned()
}

/// A CESU-8 pair of surrogates becomes one character, Java's two-byte zero a zero.
fn plain_utf8(found: &Captures<'_>) -> Vec<u8> {
    let [_, a, b, _, c, d] = found[0] else { return vec![0] };
    let bits = |b: u8, mask: u8| u32::from(b & mask);
    let code = 0x10000 + (bits(a, 0x0f) << 16) + (bits(b, 0x3f) << 10) + (bits(c, 0x0f) << 6) + bits(d, 0x3f);
    char::from_u32(code).unwrap_or('\u{fffd}').to_string().into_bytes()
}

/// Fixes runs of characters that look like UTF-8 in a text that is otherwise sound.
fn fix_runs(text: &str) -> String {
    let (mut out, mut from, mut at) = (String::with_capacity(text.len()), 0, 0);
    while let Some(run) = TABLES.run.find_at(text, at) {
        at = run.end();
        let before = text[..run.start()].char_indices().next_back();
        if before.is_some_and(|(last, _)| TABLES.strict.is_match(&text[last..run.start()])) {
            // No run starts here, but one may start at the next character.
            at = run.start() + run.as_str().chars().next().map_or(0, char::len_utf8);
        } else if run.len() < text.len() && TABLES.bad.is_match(run.as_str()) {
            out.push_str(&text[from..run.start()]);
            out.push_str(&fix(run.as_str().to_owned()));
            from = at;
        }
    }
    out.push_str(&text[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(text: &str) -> String {
        fix(text.to_owned())
    }

    #[test]
    fn layers_encodings_and_lost_bytes_are_undone() {
        for (text, expected) in [
            ("âœ” No problems", "✔ No problems"),
            ("ÃƒÂ©", "é"),
            ("l’humanitÃ©", "l’humanité"),
            ("РїСЂРёРІРµС‚ вЂ” РјРёСЂ", "привет — мир"),
            ("‚Äúquoted‚Äù", "“quoted”"),
            ("â€œ like this â€\u{fffd}", "“ like this \u{fffd}"),
            ("voilÃ le travail", "voilà le travail"),
        ] {
            assert_eq!(fixed(text), expected, "{text}");
        }
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
