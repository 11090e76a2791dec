//! Address of a destination: `s3://bucket/prefix`, or the path of a folder.

use std::path::PathBuf;

use super::is_relative_key;

/// Address as written in settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Folder(PathBuf),
    Bucket {
        name: String,
        /// Start of every key, without a slash at its end; empty for the whole bucket.
        prefix: String,
    },
}

impl Address {
    /// Parses an address. The error tells the problem and the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("is empty: name a folder, or `s3://BUCKET/PREFIX`".to_owned());
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::Folder(PathBuf::from(text)));
        };
        if scheme != "s3" {
            return Err(format!(
                "has the unknown scheme `{scheme}`: write `s3://BUCKET/PREFIX` and set `endpoint` to the address of the \
                 server, or name a folder"
            ));
        }
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if !is_bucket_name(name) {
            return Err("names no bucket: write `s3://BUCKET/PREFIX`; a bucket's name has 3 to 63 lower-case letters, \
                        digits, dots and hyphens"
                .to_owned());
        }
        if !prefix.is_empty() && !is_relative_key(prefix) {
            return Err("has an unusable prefix after the bucket: use letters, digits, `-`, `_`, `.` and `=` between \
                        single slashes"
                .to_owned());
        }
        Ok(Self::Bucket { name: name.to_owned(), prefix: prefix.to_owned() })
    }
}

fn is_bucket_name(name: &str) -> bool {
    (3..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-'))
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.ends_with(|last: char| last.is_ascii_alphanumeric())
        && !name.contains("..")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn bucket_and_prefix_are_separated() {
        let bucket =
            |name: &str, prefix: &str| Address::Bucket { name: name.to_owned(), prefix: prefix.to_owned() };
        for (text, address) in [
            ("s3://exports", bucket("exports", "")),
            ("s3://exports/", bucket("exports", "")),
            ("s3://exports/a/b/", bucket("exports", "a/b")),
            ("/var/exports", Address::Folder("/var/exports".into())),
            ("exports", Address::Folder("exports".into())),
        ] {
            assert_eq!(Address::parse(text).unwrap(), address);
        }
    }

    #[test]
    fn unusable_address_is_refused_with_a_remedy() {
        for (text, part) in [
            ("", "name a folder"),
            ("gs://exports", "unknown scheme `gs`"),
            ("http://host/exports", "set `endpoint`"),
            ("s3://", "names no bucket"),
            ("s3://UPPER/x", "names no bucket"),
            ("s3://key:secret@bucket/x", "names no bucket"),
            ("s3://exports/../other", "unusable prefix"),
            ("s3://exports//a", "unusable prefix"),
            ("s3://exports/a?x=1", "unusable prefix"),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
