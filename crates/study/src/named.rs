//! Things of a fixed set that have names: levels, metrics, loads, studies.

use std::fmt;

/// One of a fixed set, known by its name on the command line and in the data.
pub trait Named: Copy + 'static {
    /// What such a thing is called in messages.
    const KIND: &'static str;
    /// All there are.
    const ALL: &'static [Self];

    /// Its name.
    fn name(self) -> &'static str;

    /// The one of that name.
    ///
    /// # Errors
    ///
    /// Says which names there are.
    fn parse(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().copied().find(|one| one.name() == name).ok_or_else(|| UnknownName {
            kind: Self::KIND,
            accepted: Self::ALL.iter().map(|one| one.name()).collect(),
        })
    }
}

/// No such name; and those there are.
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

/// A set of things and their names, which are also what is written into data.
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
