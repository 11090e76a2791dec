//! Prints the effective settings, each with where it was set; secrets are masked by the sections themselves.
//!
//! It prints what is in force, not what could be set: `deploy/tidegate.toml` lists that.

use std::fmt::Write as _;

use super::{Loaded, tree::Node};

/// One line a value: `stream.prefix = "tidegate"  # default`.
pub(crate) fn show(loaded: &Loaded) -> Result<String, toml::ser::Error> {
    let values = toml::Value::try_from(&loaded.settings)?;
    let mut out = String::new();
    lines(&mut Vec::new(), &values, &loaded.layers, &mut out);
    Ok(out)
}

fn lines(path: &mut Vec<String>, value: &toml::Value, layers: &Node, out: &mut String) {
    if let toml::Value::Table(table) = value {
        for (key, value) in table {
            path.push(key.clone());
            lines(path, value, layers, out);
            path.pop();
        }
        return;
    }
    let parts: Vec<_> = path.iter().map(String::as_str).collect();
    let origin = layers.origin(&parts).map_or_else(|| "default".to_owned(), ToString::to_string);
    let _infallible = writeln!(out, "{} = {value}  # {origin}", path.join("."));
}
