//! Values from several layers in one tree, each remembering where it came from.
//!
//! It does not know which settings exist; `lenient` reads a typed section out of it.

use std::{collections::BTreeMap, fmt, path::PathBuf};

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    File(PathBuf),
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Table(BTreeMap<String, Self>),
    Leaf { value: toml::Value, origin: Origin },
}

/// The prefix of variables that set something: `TIDEGATE__SECTION__KEY`.
pub(crate) const VARIABLE_PREFIX: &str = "TIDEGATE__";

impl Default for Node {
    fn default() -> Self {
        Self::Table(BTreeMap::new())
    }
}

impl Node {
    pub(crate) fn of_toml(value: toml::Value, origin: &Origin) -> Self {
        match value {
            toml::Value::Table(table) => Self::Table(
                table.into_iter().map(|(key, value)| (key, Self::of_toml(value, origin))).collect(),
            ),
            value => Self::Leaf { value, origin: origin.clone() },
        }
    }

    /// Lays a value over whatever is at the path. A value that stands where a section was expected stays visible as
    /// such, so that reading it names the path.
    pub(crate) fn set(&mut self, path: &[&str], value: toml::Value, origin: Origin) {
        let Some((first, rest)) = path.split_first() else {
            *self = Self::of_toml(value, &origin);
            return;
        };
        if let Self::Leaf { .. } = self {
            *self = Self::default();
        }
        if let Self::Table(table) = self {
            table.entry((*first).to_owned()).or_default().set(rest, value, origin);
        }
    }

    /// Lays every variable of ours over the tree, in the order of their names.
    pub(crate) fn lay_over(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let mut ours: Vec<_> = variables.filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)).collect();
        ours.sort();
        for (name, text) in ours {
            let path = name[VARIABLE_PREFIX.len()..].to_lowercase();
            let path: Vec<_> = path.split("__").collect();
            self.set(&path, toml::Value::String(text), Origin::Variable(name));
        }
    }

    /// Returns the origin of the value at the path, or of the nearest value above it.
    pub(crate) fn origin(&self, path: &[&str]) -> Option<&Origin> {
        match self {
            Self::Leaf { origin, .. } => Some(origin),
            Self::Table(table) => {
                let (first, rest) = path.split_first()?;
                table.get(*first)?.origin(rest)
            }
        }
    }

    /// Returns the origin of the value at the path itself.
    pub(crate) fn origin_of(&self, path: &[&str]) -> Option<&Origin> {
        match (self, path) {
            (Self::Leaf { origin, .. }, []) => Some(origin),
            (Self::Table(table), [first, rest @ ..]) => table.get(*first)?.origin_of(rest),
            _ => None,
        }
    }

    /// Somebody who set something in here, for messages about the whole.
    pub(crate) fn any_origin(&self) -> Option<&Origin> {
        match self {
            Self::Leaf { origin, .. } => Some(origin),
            Self::Table(table) => table.values().find_map(Self::any_origin),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_variable_wins_over_the_file_and_both_are_remembered() {
        let file = Origin::File("a.toml".into());
        let mut tree = Node::of_toml(toml::from_str("[api]\nlisten = \"x\"\nother = 1").unwrap(), &file);
        tree.lay_over(
            [("TIDEGATE__API__LISTEN", "y"), ("TIDEGATE_SERVER", "z")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into_iter(),
        );
        let variable = Origin::Variable("TIDEGATE__API__LISTEN".to_owned());
        assert_eq!(tree.origin(&["api", "listen"]), Some(&variable));
        assert_eq!(tree.origin(&["api", "other"]), Some(&file));
        assert_eq!(tree.origin(&["server"]), None);
    }
}
