//! Types of request values. Limits on length, count and depth are enforced during parsing, so that a body cannot grow to many
//! times its size in memory: a list entry takes at most 32 bytes, and a list has at most [`MOST_NAMES`] entries.

use crate::Problem;
use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use flatclip::options::{Table, Value};
use serde::Serialize;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Hard limit on class names, templates or texts of a request, independent of the configured limits.
pub(crate) const MOST_NAMES: usize = 65_536;
/// Hard limit on images of a request, independent of the configured limits.
pub(crate) const MOST_IMAGES: usize = 4096;
/// Options of a method, or parameters.
const MOST_OPTIONS: usize = 100;
/// Entries of an option that is a list.
const MOST_ENTRIES: usize = 1000;
/// Bytes of an option's name.
const LONGEST_KEY: usize = 100;
/// Bytes of an option or a parameter that is a text.
const LONGEST_TEXT: usize = 64 << 10;
/// Maximum nesting depth of a tensor in JSON.
const DEEPEST: usize = 8;

/// An image in base64, the example of the description: 8 x 8 pixels.
pub(crate) const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAoElEQVR42h2OoRHCUBBEVyAiIiIiIjI3CETkl4gVyEgE6hSCApBbBAJ1NVDAlUAFVxHzsTs77z0AMICAAwICSKDwn80OtMFtlE1hc9pStvazcSAn5yIeg1uyFc8dYT7SF/eTvIUzfS+/dbBpoo6uJl1C19S99Ow6i5mxeVBxjXhkqOLVIywXZvPclfdIZb4rPz3NamWdvW6qZ9Qr61P1/QEJ5UDBJBkSEQAAAABJRU5ErkJggg==";

/// An image in base64, decoded as it is read; the beginning of a data address is allowed. Only the description of the routes
/// serialises it, as a default, which is empty.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Encoded {
    #[serde(skip)]
    Bytes(Bytes),
    /// Not base64.
    Broken,
}

impl Encoded {
    pub(crate) fn new(text: &str) -> Self {
        let text = match text.split_once(";base64,") {
            Some((start, rest)) if start.starts_with("data:") => rest,
            _ => text,
        };
        let text = text.trim();
        let found = [STANDARD, STANDARD_NO_PAD, URL_SAFE].iter().find_map(|engine| engine.decode(text).ok());
        found.map_or(Self::Broken, |bytes| Self::Bytes(bytes.into()))
    }

    pub(crate) fn bytes(self) -> Result<Bytes, Problem> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Broken => Err(Problem::invalid("image", "expected an image in base64")),
        }
    }
}

impl<'de> Deserialize<'de> for Encoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Encoded;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Encoded, E> {
                Ok(Encoded::new(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A list of at most `MOST` values.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Few<T, const MOST: usize>(pub(crate) Vec<T>);

/// Class names, templates, texts.
pub(crate) type Names = Few<String, MOST_NAMES>;
pub(crate) type Images = Few<Encoded, MOST_IMAGES>;

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Few<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const MOST: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
            type Value = Few<T, MOST>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    if values.len() == MOST {
                        return Err(A::Error::custom(format_args!("a list has more than {MOST} entries")));
                    }
                    values.push(value);
                }
                Ok(Few(values))
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// A text, or a list of texts.
#[derive(Clone, Debug)]
pub(crate) struct OneOrSeveral(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for OneOrSeveral {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrSeveral;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts; lists of tokens are not taken")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrSeveral(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                let list = serde::de::value::SeqAccessDeserializer::new(list);
                Names::deserialize(list).map(|names| OneOrSeveral(names.0))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Options of a method: numbers, texts, flags, or lists of them.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Options(pub(crate) Table);

/// Parameters of the Open Inference Protocol: numbers, texts, flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(pub(crate) Table);

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries { lists: true }).map(Self)
    }
}

/// `null` means absent, for the whole value and for each entry.
impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Entries { lists: false }).map(Self)
    }
}

struct Entries {
    lists: bool,
}

impl<'de> Visitor<'de> for Entries {
    type Value = Table;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of options")
    }
    fn visit_unit<E: Error>(self) -> Result<Table, E> {
        Ok(Table::new())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Table, A::Error> {
        let mut table = Table::new();
        while let Some(key) = map.next_key::<String>()? {
            if table.len() == MOST_OPTIONS || key.len() > LONGEST_KEY {
                return Err(A::Error::custom(format_args!(
                    "more than {MOST_OPTIONS} options, or a name that is too long"
                )));
            }
            if let Some(value) = map.next_value_seed(OneValue { lists: self.lists })?
                && table.insert(key, value).is_some()
            {
                return Err(A::Error::custom("duplicate option"));
            }
        }
        Ok(table)
    }
}

#[derive(Clone, Copy)]
struct OneValue {
    lists: bool,
}

impl<'de> DeserializeSeed<'de> for OneValue {
    type Value = Option<Value>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// `None` for `null`: the option is not given.
impl<'de> Visitor<'de> for OneValue {
    type Value = Option<Value>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.lists {
            "a number, a text, true or false, or a list"
        } else {
            "a number, a text, true or false"
        })
    }
    fn visit_unit<E: Error>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }
    fn visit_bool<E: Error>(self, flag: bool) -> Result<Option<Value>, E> {
        Ok(Some(flag.into()))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<Value>, E> {
        Ok(Some(number.into()))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<Value>, E> {
        i64::try_from(number).map(|number| Some(number.into())).map_err(|_| E::custom("a number is too large"))
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<Option<Value>, E> {
        Ok(Some(number.into()))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Value>, E> {
        if text.len() > LONGEST_TEXT {
            return Err(E::custom(format_args!("a text is longer than {LONGEST_TEXT} bytes")));
        }
        Ok(Some(text.into()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<Value>, A::Error> {
        if !self.lists {
            return Err(A::Error::custom("expected a number, a text, true or false, found a list"));
        }
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(OneValue { lists: false })? {
            if values.len() == MOST_ENTRIES {
                return Err(A::Error::custom(format_args!("an option has more than {MOST_ENTRIES} entries")));
            }
            values.push(value.ok_or_else(|| A::Error::custom("a list has null as an entry"))?);
        }
        Ok(Some(Value::Array(values)))
    }
}

/// The values of a tensor in JSON, flat or nested: texts, or bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) texts: Vec<Bytes>,
    pub(crate) bytes: Vec<u8>,
    /// A number that is no byte, a flag, null.
    pub(crate) has_other: bool,
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut data = Self::default();
        deserializer.deserialize_any(Nested { data: &mut data, depth: 0 })?;
        Ok(data)
    }
}

struct Nested<'d> {
    data: &'d mut Data,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Nested<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("texts or numbers, flat or nested")
    }
    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.data.has_other = true;
        Ok(())
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.data.has_other = true;
        Ok(())
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.data.has_other = true;
        Ok(())
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.data.has_other = true;
        Ok(())
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        match u8::try_from(number) {
            Ok(byte) => self.data.bytes.push(byte),
            Err(_) => self.data.has_other = true,
        }
        Ok(())
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if self.data.texts.len() == MOST_NAMES {
            return Err(E::custom(format_args!("a tensor has more than {MOST_NAMES} texts")));
        }
        self.data.texts.push(Bytes::copy_from_slice(text.as_bytes()));
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.depth == DEEPEST {
            return Err(A::Error::custom(format_args!("more than {DEEPEST} lists inside of lists")));
        }
        let depth = self.depth + 1;
        let mut lists = 0usize;
        while list.next_element_seed(Nested { data: self.data, depth })?.is_some() {
            lists += 1;
        }
        // Empty lists hold no values, so the limit on values does not limit their number.
        if lists == 0 && depth > 1 {
            return Err(A::Error::custom("a list inside of a list is empty"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails<'a, T: Deserialize<'a>>(text: &'a str) -> bool {
        serde_json::from_str::<T>(text).is_err()
    }

    #[test]
    fn options_are_scalars_or_lists_of_scalars_and_few() {
        let Options(options) = serde_json::from_str(r#"{"a":1,"b":0.5,"c":"x","d":true,"e":[1,2]}"#).unwrap();
        assert_eq!(options.len(), 5);
        assert!(fails::<Options>(r#"{"x":[{"":0}]}"#) && fails::<Options>(r#"{"x":{}}"#));
        assert!(fails::<Options>(r#"{"x":[null]}"#) && fails::<Options>(r#"{"x":[[1]]}"#));
        assert!(serde_json::from_str::<Options>(r#"{"x":null}"#).unwrap().0.is_empty());
        assert!(fails::<Options>(r#"{"x":1,"x":2}"#));
        assert!(fails::<Options>(&format!("{{\"x\":[{}0]}}", "0,".repeat(MOST_ENTRIES))));
        assert!(fails::<Parameters>(r#"{"x":[1]}"#));
    }

    #[test]
    fn lists_end_at_their_bound() {
        let list = |count: usize| format!("[{}\"\"]", "\"\",".repeat(count - 1));
        assert_eq!(serde_json::from_str::<Names>(&list(MOST_NAMES)).unwrap().0.len(), MOST_NAMES);
        assert!(fails::<Names>(&list(MOST_NAMES + 1)) && fails::<Data>(&list(MOST_NAMES + 1)));
        assert!(fails::<OneOrSeveral>("[1]") && fails::<OneOrSeveral>("[[]]") && fails::<OneOrSeveral>("{}"));
    }

    #[test]
    fn tensors_are_flat_or_nested_and_of_one_kind() {
        let data: Data = serde_json::from_str("[[1,2],[3,255]]").unwrap();
        assert_eq!((data.bytes, data.has_other), (vec![1, 2, 3, 255], false));
        assert!(serde_json::from_str::<Data>("[256]").unwrap().has_other);
        assert!(fails::<Data>(&format!("{}1{}", "[".repeat(9), "]".repeat(9))));
        assert!(fails::<Data>("[[],[],[]]") && fails::<Data>("[{}]"));
    }

    #[test]
    fn base64_is_decoded_as_it_is_read() {
        let Ok(Encoded::Bytes(bytes)) = serde_json::from_str("\"data:image\\/png;base64,QUJD\"") else {
            panic!("broken")
        };
        assert_eq!(&bytes[..], b"ABC");
        assert!(matches!(serde_json::from_str("\"###\"").unwrap(), Encoded::Broken));
    }
}
