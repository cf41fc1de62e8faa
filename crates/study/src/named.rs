//! Names of levels, metrics, loads and studies.

use std::fmt;

/// A member of a fixed set. The command line and the data have its name.
pub trait Named: Copy + 'static {
    /// The word for a member in messages: "level", "metric".
    const KIND: &'static str;
    /// All members of the set.
    const ALL: &'static [Self];

    /// Returns the member's name.
    fn name(self) -> &'static str;

    /// Returns the member with that name.
    ///
    /// # Errors
    ///
    /// No member has that name. The error lists the accepted names.
    fn parse(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().copied().find(|one| one.name() == name).ok_or_else(|| UnknownName {
            kind: Self::KIND,
            accepted: Self::ALL.iter().map(|one| one.name()).collect(),
        })
    }
}

/// A name that no member has, and the accepted names.
#[derive(Debug)]
pub struct UnknownName {
    kind: &'static str,
    accepted: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such {}; expected one of {}", self.kind, self.accepted.join(", "))
    }
}

impl std::error::Error for UnknownName {}

/// Implements [`Named`] for a set. Serialized data has the same names.
macro_rules! named {
    ($type:ident, $kind:literal, { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $crate::named::Named for $type {
            const KIND: &'static str = $kind;
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::named::Named::name(*self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = String::deserialize(deserializer)?;
                $crate::named::Named::parse(&name).map_err(serde::de::Error::custom)
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::named::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                $crate::named::Named::parse(name)
            }
        }
    };
}
pub(crate) use named;

#[cfg(test)]
mod tests {
    use crate::{Level, Load, Metric, Named, Study};

    fn each_is_found_by_its_name<T: Named + PartialEq + std::fmt::Debug>() {
        for one in T::ALL {
            assert_eq!(T::parse(one.name()).unwrap(), *one);
        }
        let words = T::parse("no-such").unwrap_err().to_string();
        assert!(words.contains(T::ALL[0].name()), "{words}");
    }

    #[test]
    fn names_stand_for_one_thing_each() {
        each_is_found_by_its_name::<Level>();
        each_is_found_by_its_name::<Load>();
        each_is_found_by_its_name::<Metric>();
        each_is_found_by_its_name::<Study>();
    }
}
