//! Tree of the values of several layers, each with its origin.
//!
//! `lenient` reads typed sections from it.

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

/// Prefix of variables that set a value: `TIDEGATE__SECTION__KEY`.
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

    /// Sets the value at the path. A single value may replace a section and stays in the tree, so that the reader reports its path.
    pub(crate) fn set(&mut self, path: &[&str], value: toml::Value, origin: Origin) {
        let Some((first, rest)) = path.split_first() else {
            *self = Self::of_toml(value, &origin);
            return;
        };
        // A value of a section replaces a single value of a lower layer.
        if let Self::Leaf { .. } = self {
            *self = Self::default();
        }
        if let Self::Table(table) = self {
            table.entry((*first).to_owned()).or_default().set(rest, value, origin);
        }
    }

    /// Sets the value of each variable with the prefix.
    pub(crate) fn apply_variables(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let mut prefixed: Vec<_> = variables.filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)).collect();
        // The order of the environment is undefined, and a variable for a section and one for a value in it may conflict.
        prefixed.sort();
        for (name, text) in prefixed {
            let path = name[VARIABLE_PREFIX.len()..].to_lowercase();
            let path: Vec<_> = path.split("__").collect();
            self.set(&path, toml::Value::String(text), Origin::Variable(name));
        }
    }

    /// Returns the origin of the value at the path, or of the nearest value above it.
    pub(crate) fn nearest_origin(&self, path: &[&str]) -> Option<&Origin> {
        match self {
            Self::Leaf { origin, .. } => Some(origin),
            Self::Table(table) => {
                let (first, rest) = path.split_first()?;
                table.get(*first)?.nearest_origin(rest)
            }
        }
    }

    /// Returns the origin of the value at the path itself.
    pub(crate) fn exact_origin(&self, path: &[&str]) -> Option<&Origin> {
        match (self, path) {
            (Self::Leaf { origin, .. }, []) => Some(origin),
            (Self::Table(table), [first, rest @ ..]) => table.get(*first)?.exact_origin(rest),
            _ => None,
        }
    }

    /// Returns the origin of one of the values in the node, for messages about the whole node.
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
    fn variable_has_precedence_over_the_file() {
        let file = Origin::File("a.toml".into());
        let mut tree = Node::of_toml(toml::from_str("[api]\nlisten = \"x\"\nother = 1").unwrap(), &file);
        tree.apply_variables(
            [("TIDEGATE__API__LISTEN", "y"), ("TIDEGATE_SERVER", "z")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into_iter(),
        );
        let variable = Origin::Variable("TIDEGATE__API__LISTEN".to_owned());
        assert_eq!(tree.nearest_origin(&["api", "listen"]), Some(&variable));
        assert_eq!(tree.nearest_origin(&["api", "other"]), Some(&file));
        assert_eq!(tree.nearest_origin(&["server"]), None);
    }
}
