//! Writes documents in a canonical form, so that equal documents have equal text. Comments and the key order of a file
//! are lost.

use std::fmt::Write;

use super::{
    Document,
    read::MAX_DEPTH,
    tree::{Shape, Tree},
};
use crate::{json, validation_error::Pointer};

/// File format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

/// Renders a document, with a newline at the end.
pub fn render(document: &Document, format: Format) -> String {
    // This cannot fail: documents have only string keys and finite numbers.
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    match format {
        Format::Json => text + "\n",
        Format::Yaml => {
            let bytes = text.as_bytes();
            let tape = json::scan_to(bytes, &Pointer::Root, MAX_DEPTH).ok();
            let tree = tape.and_then(|tape| Tree::of_json(tape.root(bytes), &|_| 0).ok());
            let mut out = String::new();
            if let Some(tree) = tree {
                write_block(&tree, 0, &mut out);
            }
            out
        }
    }
}

/// Writes a value at the current position, indenting its further lines.
fn write_block(tree: &Tree, indent: usize, out: &mut String) {
    match &tree.shape {
        Shape::Map(entries) if !entries.is_empty() => {
            for (at, (key, value)) in entries.iter().enumerate() {
                if at > 0 {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                write_text(key, out);
                out.push(':');
                // A container with members starts on the next line, a scalar on the line of its key.
                match &value.shape {
                    Shape::Map(inner) if !inner.is_empty() => write_nested(value, indent + 2, out),
                    Shape::List(inner) if !inner.is_empty() => write_nested(value, indent + 2, out),
                    _ => {
                        out.push(' ');
                        write_block(value, indent, out);
                    }
                }
            }
        }
        Shape::List(values) if !values.is_empty() => {
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                out.push_str("- ");
                write_block(value, indent + 2, out);
            }
        }
        scalar => {
            match scalar {
                Shape::Null => out.push_str("null"),
                Shape::Bool(value) => _ = write!(out, "{value}"),
                Shape::Number(number) => _ = write!(out, "{number}"),
                Shape::Text(value) => write_text(value, out),
                // Only empty containers get here; the others are written as blocks above.
                Shape::List(_) => out.push_str("[]"),
                Shape::Map(_) => out.push_str("{}"),
            }
            out.push('\n');
        }
    }
}

fn write_nested(tree: &Tree, indent: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
    write_block(tree, indent, out);
}

/// Writes a text without quotes only if every YAML version reads it as a string.
fn write_text(value: &str, out: &mut String) {
    // YAML 1.1 reads these words as booleans, nulls or numbers.
    const RESERVED_WORDS: [&str; 13] =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "none"];
    let is_plain_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ' | '$');
    let is_plain = value.starts_with(|c: char| c.is_ascii_alphabetic())
        && !value.ends_with(' ')
        && value.chars().all(is_plain_char)
        && !RESERVED_WORDS.contains(&value.to_ascii_lowercase().as_str());
    if is_plain {
        out.push_str(value);
        return;
    }
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || matches!(u32::from(c), 0x2028 | 0x2029 | 0xfeff | 0xfff0..=0xffff) => {
                _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
