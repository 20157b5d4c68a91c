//! The macros that make options of declarations.

/// Makes a struct of options; see [the module](mod@crate::options).
///
/// A field is a sentence as its doc comment, then
/// `name: Type = default, alias "other", range RANGE, from "source";`,
/// where alias and range may be omitted. A range is `at_least(n)`, `above(n)`, `between(a, b)`,
/// `from_below(a, b)`, `up_to(n)` or `fraction`; types are those of
/// [`OptionValue`](crate::options::OptionValue). `include group;` includes the fields of an
/// [`option_group!`](crate::option_group!), and `include group { name = default, from "source"; };` changes
/// defaults. A rule over several options is a function that the head names:
/// `struct Config for "table", check Config::rule { .. }`.
///
/// The struct gets `NAME`, `OPTIONS`, `read`, `table` and `check`, and implements `Clone`, `Debug`,
/// `PartialEq` and `Default`.
#[macro_export]
macro_rules! options {
    (@munch $head:tt $fields:tt [$($changed:tt)*] include $group:ident $({ $($own:tt)* })? ; $($rest:tt)*) => {
        $group! { @include [$head $fields [$($changed)* $($($own)*)?]] $($rest)* }
    };
    (@munch $head:tt [$($field:tt)*] $changed:tt
        $(#[doc = $sentence:literal])+
        $name:ident : $type:ty = $default:expr
        $(, alias $alias:literal)* $(, range $range:ident $(($($bound:expr),+))?)? , from $source:literal ;
        $($rest:tt)*
    ) => {
        $crate::options! { @munch $head [$($field)* {
            [$($sentence),+] $name [$type] [$default] [$($alias),*] [$($range ($($($bound),+)?))?] $source
        }] $changed $($rest)* }
    };
    (@munch [$(#[$meta:meta])* {$vis:vis} $name:ident $table:literal {$($check:path)?}]
        [$({ [$($sentence:literal),+] $field:ident [$type:ty] [$default:expr] [$($alias:literal),*] $range:tt $source:literal })*]
        [$($target:ident = $value:expr, from $changed:literal;)*]
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $(
                $(#[doc = $sentence])+
                #[doc = ""]
                #[doc = concat!("Source of the default: ", $source, ".")]
                $vis $field: $type,
            )*
        }

        #[allow(clippy::derivable_impls)]
        impl ::std::default::Default for $name {
            fn default() -> Self {
                #[allow(unused_mut)]
                let mut options = Self { $($field: $default,)* };
                $(options.$target = $value;)*
                options
            }
        }

        #[allow(dead_code)]
        impl $name {
            /// The table of these options, the first part of their keys.
            $vis const NAME: &'static str = $table;

            /// Included options with a default of their own, and its source.
            const CHANGED: &'static [(&'static str, &'static str)] = &[$((stringify!($target), $changed)),*];

            /// Every option, in the order of the fields.
            $vis const OPTIONS: &'static [$crate::options::OptionSpec] = &[$(
                $crate::options::OptionSpec {
                    name: stringify!($field),
                    aliases: &[$($alias),*],
                    kind: <$type as $crate::options::OptionValue>::KIND,
                    default: &|| $crate::options::OptionValue::to_value(&Self::default().$field),
                    range: $crate::options!(@range $range),
                    source: $crate::options::source_of(stringify!($field), $source, Self::CHANGED),
                    sentence: concat!($($sentence),+).trim_ascii(),
                },
            )*];

            /// Reads options; an absent one has its default. An unknown key, a value of another type or
            /// outside its range is an error that names the key.
            $vis fn read(table: &$crate::options::Table) -> $crate::Result<Self> {
                let _all = $crate::options::complete(Self::NAME, Self::OPTIONS, table)?;
                let options = Self { $($field: $crate::options::take(Self::NAME, stringify!($field), &_all)?,)* };
                $($check(&options)?;)?
                Ok(options)
            }

            /// The options as a table.
            $vis fn table(&self) -> $crate::options::Table {
                #[allow(unused_mut)]
                let mut table = $crate::options::Table::new();
                $(table.insert(
                    stringify!($field).to_owned(), $crate::options::OptionValue::to_value(&self.$field)
                );)*
                table
            }

            /// The first value that makes no sense, as an error.
            $vis fn check(&self) -> $crate::Result<()> {
                Self::read(&self.table()).map(drop)
            }
        }
    };
    (@range []) => { $crate::options::Range::ANY };
    (@range [$range:ident ($($bound:expr),*)]) => { $crate::options::Range::$range($($bound as f64),*) };
    ($(#[$meta:meta])* $vis:vis struct $name:ident for $table:literal $(, check $check:path)? { $($fields:tt)* }) => {
        $crate::options! { @munch [$(#[$meta])* {$vis} $name $table {$($check)?}] [] [] $($fields)* }
    };
}

/// Names fields that several [`options!`](crate::options!) share: `option_group! { ($) name { fields } }`.
/// The `$` in front is needed, because a group is a macro itself.
#[macro_export]
macro_rules! option_group {
    (($d:tt) $(#[$meta:meta])* $vis:vis $name:ident { $($fields:tt)* }) => {
        $(#[$meta])*
        macro_rules! $name {
            (@include [$d($d state:tt)*] $d($d rest:tt)*) => {
                $crate::options! { @munch $d($d state)* $($fields)* $d($d rest)* }
            };
        }
        #[allow(unused_imports)]
        $vis use $name;
    };
}

/// Makes an enum an option can choose from: each variant with its name and, as its doc comment, what it
/// means. `choices! { impl Enum { .. } }` does the same for an enum that exists.
#[macro_export]
macro_rules! choices {
    (impl $name:ident { $($(#[doc = $sentence:literal])+ $variant:ident = $text:literal),+ $(,)? }) => {
        impl $crate::options::OptionValue for $name {
            const KIND: $crate::options::OptionKind = $crate::options::OptionKind::Choice(&[$(
                $crate::options::Choice { name: $text, sentence: concat!($($sentence),+).trim_ascii() }
            ),+]);

            fn from_value(value: &$crate::options::Value) -> Option<Self> {
                match value.as_str()? {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn to_value(&self) -> $crate::options::Value {
                let name = match self {
                    $(Self::$variant => $text,)+
                };
                $crate::options::Value::String(name.to_owned())
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[doc = $sentence:literal])+ $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[doc = $sentence])+ $variant,)+
        }

        $crate::choices! { impl $name { $($(#[doc = $sentence])+ $variant = $text),+ } }
    };
}
