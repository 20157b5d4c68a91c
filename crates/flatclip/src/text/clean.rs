//! Text cleaning as CLIP's tokenizer does it: `ftfy.fix_text`, HTML unescaping twice, white space, lower case.
//!
//! Of ftfy 6.3 with its default settings this covers: HTML entities, mojibake (see [`super::mojibake`]), C1 controls,
//! Latin ligatures, character width, curly quotes, line breaks, terminal escapes, control characters and NFC.
//! Surrogates cannot occur in a Rust string. Not covered: ftfy's cut of lines at a million characters.

use super::{html, mojibake};
use unicode_normalization::UnicodeNormalization as _;

/// The text that CLIP's tokenizer cuts into tokens.
pub(crate) fn clean(text: &str) -> String {
    squeezed(&unescaped(text)).to_lowercase()
}

/// How a text is cleaned before SentencePiece cuts it. It goes with the library whose files describe the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cleaning {
    /// open_clip's `canonicalize`, of SigLIP and SigLIP 2: as CLIP's, underscores to spaces, ASCII punctuation deleted.
    Canonicalize,
    /// open_clip's `lower`: as CLIP's.
    Lower,
    /// open_clip's `whitespace`: as CLIP's, with capitals.
    Whitespace,
    /// transformers' SiglipTokenizer: lower case, ASCII punctuation deleted; neither ftfy nor HTML.
    Siglip,
    /// transformers' Siglip2Tokenizer: lower case.
    Siglip2,
    /// transformers' GemmaTokenizer: nothing.
    Nothing,
}

impl Cleaning {
    /// Each with its library and what that calls it, in the order of the variants.
    const NAMES: [(Self, &str); 6] = [
        (Self::Canonicalize, "open_clip canonicalize"),
        (Self::Lower, "open_clip lower"),
        (Self::Whitespace, "open_clip whitespace"),
        (Self::Siglip, "transformers SiglipTokenizer"),
        (Self::Siglip2, "transformers Siglip2Tokenizer"),
        (Self::Nothing, "none"),
    ];

    pub(super) fn named(library: &str, word: &str) -> Option<Self> {
        let name = format!("{library} {word}");
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|&(cleaning, _)| cleaning)
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// What is done to the whole text, before markers such as `</s>` are looked for.
    pub(super) fn whole(self, text: &str) -> String {
        match self {
            Self::Canonicalize => squeezed(&plain(&unescaped(text).replace('_', " ")).to_lowercase()),
            Self::Lower => clean(text),
            Self::Whitespace => squeezed(&unescaped(text)),
            Self::Siglip => lower_each(text),
            Self::Siglip2 | Self::Nothing => text.to_owned(),
        }
    }

    /// What is done to the text between markers.
    pub(super) fn part(self, text: &str) -> String {
        match self {
            Self::Siglip => {
                let spaces = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
                plain(text).split(spaces).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
            }
            Self::Siglip2 => lower_each(text),
            _ => text.to_owned(),
        }
    }
}

fn unescaped(text: &str) -> String {
    html::unescape(&html::unescape(&fix_text(text)))
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Without the 32 ASCII signs of Python's `string.punctuation`.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_punctuation()).collect()
}

/// Each character by itself: a final sigma is like any other, unlike in `str::to_lowercase`.
fn lower_each(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// Fixes one line after the other; a `<` in any line so far means that the text is HTML, whose entities are meant.
fn fix_text(text: &str) -> String {
    if text.bytes().all(|b| (b' '..0x7f).contains(&b) && b != b'&') {
        return text.to_owned();
    }
    let mut is_html = false;
    let lines = text.split_inclusive('\n').map(|line| {
        is_html |= line.contains('<');
        fix_line(line, !is_html)
    });
    lines.collect()
}

fn fix_line(line: &str, unescape: bool) -> String {
    let mut text = line.to_owned();
    loop {
        let mut fixed = if unescape { html::unescape_terminated(&text) } else { text.clone() };
        fixed = mojibake::fix(fixed);
        fixed = remove_terminal_escapes(&plain_characters(&fixed));
        fixed = fixed.chars().filter(|&c| !is_control(c)).nfc().collect();
        if fixed == text {
            return text;
        }
        text = fixed;
    }
}

/// C1 controls, ligatures, width, quotes and line breaks: each character by itself, apart from CR LF.
fn plain_characters(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        // A control of the C1 range is Windows-1252 misread; NEL (0x85) becomes an ellipsis before it is a line break.
        let c = if ('\u{80}'..='\u{9f}').contains(&c) { mojibake::windows_1252(c as u8) } else { c };
        match c {
            '\u{2bc}' | '\u{2018}'..='\u{201b}' => out.push('\''),
            '\u{201c}'..='\u{201f}' => out.push('"'),
            '\r' | '\u{2028}' | '\u{2029}' | '\u{85}' => out.push('\n'),
            '\u{3000}' => out.push(' '),
            // Two Latin ligatures and digraphs that NFKC takes apart in another way. U+0149 holds U+02BC, a quote.
            'ŉ' => out.push_str("'n"),
            'ﬅ' => out.push_str("ſt"),
            'Ĳ' | 'ĳ' | 'Ǆ'..='ǌ' | 'Ǳ'..='ǳ' | 'ﬀ'..='ﬆ' | '\u{ff01}'..='\u{ffef}' => {
                out.extend([c].into_iter().nfkc())
            }
            _ => out.push(c),
        }
    }
    out
}

/// Drops `ESC [ digits and semicolons LETTER`, the colours of a terminal.
fn remove_terminal_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        let body = &rest[at + 2..];
        let end = body.find(|c: char| !c.is_numeric() && c != ';').unwrap_or(body.len());
        let is_escape = body[end..].starts_with(|c: char| c.is_ascii_alphabetic());
        out.push_str(&rest[..at + if is_escape { 0 } else { 2 }]);
        rest = if is_escape { &body[end + 1..] } else { body };
    }
    out.push_str(rest);
    out
}

/// Controls that nobody means: ASCII ones but white space, old Arabic shaping, byte order mark, annotations.
fn is_control(c: char) -> bool {
    matches!(c, '\0'..='\x08' | '\x0b' | '\x0e'..='\x1f' | '\x7f' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffc}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cleaned_as_by_ftfy_html_unescape_and_lower() {
        for (text, expected) in [
            ("“ﬁne” ＡＢＣ　ﾀ ŉ ﬆ", "\"fine\" abc タ 'n st"),
            // The final sigma and the dotted I.
            ("ΟΔΟΣ İ ΣΑ", "οδος i\u{307} σα"),
            ("\x1b[31;1mred\x1b[0m\x07 a\r\nb\u{2028}c \u{feff}", "red a b c"),
            // HTML is unescaped to the end unless a tag shows that it is meant.
            ("&amp;amp;amp;lt;", "<"),
            ("<b>&amp;amp;amp;", "<b>&amp;"),
            ("e\u{301}", "é"),
        ] {
            assert_eq!(clean(text), expected, "{text}");
        }
    }

    #[test]
    fn each_library_cleans_in_its_own_way() {
        let text = "A_b &amp; C. ΣΑΣ \u{1c}d";
        let of = |cleaning: Cleaning| cleaning.part(&cleaning.whole(text));
        assert_eq!(of(Cleaning::Canonicalize), "a b c σας d");
        assert_eq!(of(Cleaning::Lower), "a_b & c. σας d");
        assert_eq!(of(Cleaning::Whitespace), "A_b & C. ΣΑΣ d");
        assert_eq!(of(Cleaning::Siglip), "ab amp c σασ d");
        assert_eq!(of(Cleaning::Siglip2), "a_b &amp; c. σασ \u{1c}d");
        assert_eq!(of(Cleaning::Nothing), text);
    }
}
