//! Macro for enums that are stored and sent as fixed strings: states, kinds, verdicts, classes.

use std::fmt;

/// Error for a string that is no variant of a [`string_enum!`](crate::string_enum). It lists the known variants, but
/// not the string itself, which can be payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownVariant(pub &'static [&'static str]);

impl fmt::Display for UnknownVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of {}", self.0.join(", "))
    }
}

impl std::error::Error for UnknownVariant {}

/// Declares an enum that is stored and sent as fixed strings, with conversions in both directions.
///
/// ```
/// tidegate_schemas::string_enum! {
///     /// State of a review job.
///     pub enum JobState {
///         /// A moderator can claim the job.
///         Open = "open",
///         Decided = "decided",
///     }
/// }
/// assert_eq!(JobState::Open.as_str(), "open");
/// assert_eq!("decided".parse(), Ok(JobState::Decided));
/// assert!("shut".parse::<JobState>().is_err());
/// ```
#[macro_export]
macro_rules! string_enum {
    // All but `Deserialize`, which the enums of documents derive.
    (@names $(#[$meta:meta])* $vis:vis enum $Name:ident {
        $($(#[$about:meta])* $Variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $Name {
            $($(#[$about])* $Variant,)+
        }

        impl $Name {
            /// All variants, in order of declaration.
            #[allow(dead_code, reason = "an enum may have no use for the list")]
            $vis const ALL: &'static [Self] = &[$(Self::$Variant),+];

            /// Returns the stored and sent string.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Variant => $text,)+
                }
            }
        }

        impl ::std::fmt::Display for $Name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $Name {
            type Err = $crate::string_enum::UnknownVariant;

            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$Variant),)+
                    _ => Err($crate::string_enum::UnknownVariant(&[$($text),+])),
                }
            }
        }

        impl $crate::string_enum::serde::Serialize for $Name {
            fn serialize<S: $crate::string_enum::serde::Serializer>(
                &self,
                to: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis enum $Name:ident {
        $($(#[$about:meta])* $Variant:ident = $text:literal),+ $(,)?
    }) => {
        $crate::string_enum! {
            @names $(#[$meta])* $vis enum $Name { $($(#[$about])* $Variant = $text),+ }
        }

        impl<'de> $crate::string_enum::serde::Deserialize<'de> for $Name {
            fn deserialize<D: $crate::string_enum::serde::Deserializer<'de>>(
                from: D,
            ) -> ::std::result::Result<Self, D::Error> {
                let text = <::std::borrow::Cow<'de, str> as $crate::string_enum::serde::Deserialize>::deserialize(from)?;
                text.parse().map_err($crate::string_enum::serde::de::Error::custom)
            }
        }
    };
}

// Crates that use the macro then need no dependency on serde.
#[doc(hidden)]
pub use serde;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    string_enum! {
        /// Sample of two variants.
        pub(super) enum Colour {
            Red = "red",
            DarkGreen = "dark_green",
        }
    }

    #[test]
    fn each_variant_converts_to_its_string_and_back() {
        for colour in Colour::ALL {
            assert_eq!(colour.as_str().parse(), Ok(*colour));
            let json = serde_json::to_string(colour).unwrap();
            assert_eq!(json, format!("\"{colour}\""));
            assert_eq!(serde_json::from_str::<Colour>(&json).unwrap(), *colour);
        }
    }

    #[test]
    fn unknown_string_is_refused_and_not_repeated() {
        let error = "scarlet".parse::<Colour>().unwrap_err();
        assert_eq!(error.to_string(), "expected one of red, dark_green");
        assert!(serde_json::from_str::<Colour>("\"Red\"").is_err());
    }
}
