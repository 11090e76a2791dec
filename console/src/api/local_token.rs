//! Token that authenticates commands on the same machine.

use std::fmt;

use subtle::ConstantTimeEq;

/// Token of the commands on the same machine, valid while the process runs.
pub struct LocalToken(String);

impl LocalToken {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn matches(&self, token: &str) -> bool {
        // Constant time: the duration of a failed attempt must not reveal how much of the token was right.
        self.0.as_bytes().ct_eq(token.as_bytes()).into()
    }
}

impl fmt::Debug for LocalToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalToken(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_token_matches_exactly_and_is_not_printed() {
        let token = LocalToken::new("a-token".to_owned());
        assert!(token.matches("a-token"));
        assert!(!token.matches("a-toke") && !token.matches("") && !token.matches("a-token "));
        assert_eq!(format!("{token:?}"), "LocalToken(***)");
    }
}
