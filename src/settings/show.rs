//! Prints the effective settings with the origin of each; sections mask their secrets themselves.
//!
//! All available settings are listed in `deploy/tidegate.toml`.

use std::fmt::Write as _;

use super::{LoadedSettings, tree::Node};

/// Renders one line per value: `stream.prefix = "tidegate"  # default`.
pub(crate) fn show(loaded: &LoadedSettings) -> Result<String, toml::ser::Error> {
    let values = toml::Value::try_from(&loaded.settings)?;
    let mut out = String::new();
    append_lines(&mut Vec::new(), &values, &loaded.layers, &mut out);
    Ok(out)
}

fn append_lines(path: &mut Vec<String>, value: &toml::Value, layers: &Node, out: &mut String) {
    if let toml::Value::Table(table) = value {
        for (key, value) in table {
            path.push(key.clone());
            append_lines(path, value, layers, out);
            path.pop();
        }
        return;
    }
    let parts: Vec<_> = path.iter().map(String::as_str).collect();
    let origin = layers.nearest_origin(&parts).map_or_else(|| "default".to_owned(), ToString::to_string);
    let _infallible = writeln!(out, "{} = {value}  # {origin}", path.join("."));
}
