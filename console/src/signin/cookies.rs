//! The console's only cookie: a random token under the name that the connection permits.
//!
//! Before the sign-in, the token only ties forms to the browser. The sign-in replaces it, so a token planted earlier is useless.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;
use tidegate_schemas::hex::{decode, hex};
use tidegate_web::Problem;

/// Cookie name that browsers accept only over TLS and only from this host.
const NAME: &str = "__Host-tidegate";
/// Cookie name for a browser on the same machine without TLS.
const LOCAL_NAME: &str = "tidegate";
const BYTES: usize = 32;

/// Token of a cookie. Never printed; the store holds only its hash.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionToken([u8; BYTES]);

impl SessionToken {
    pub(crate) fn random() -> Result<Self, Problem> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            tracing::error!(%error, "cannot get random bytes from the system");
            Problem::internal()
        })?;
        Ok(Self(bytes))
    }

    /// Returns the token in the request's cookie. The plain cookie counts only on a local connection.
    pub(crate) fn from_cookie(headers: &HeaderMap, uri: &Uri) -> Option<Self> {
        let is_local_connection = is_local(headers, uri);
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs: Vec<_> =
            cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('=')).collect();
        let find_cookie =
            |cookie_name: &str| pairs.iter().find(|(name, _)| *name == cookie_name).map(|(_, value)| *value);
        // The `__Host-` cookie takes precedence: pages of other hosts cannot set it.
        let text = find_cookie(NAME).or_else(|| find_cookie(LOCAL_NAME).filter(|_| is_local_connection))?;
        decode(text).map(Self)
    }

    /// Key of the session in the store.
    pub(crate) fn hash(&self) -> String {
        hex(&Sha256::digest(self.0))
    }

    /// Token for forms, derived from the cookie's token by a hash that cannot be reversed.
    pub(crate) fn form_token(&self) -> String {
        let mut hash = Sha256::new();
        // The prefix keeps the form token different from the token's hash, which is the key of the session's row.
        hash.update(b"tidegate form\0");
        hash.update(self.0);
        hex(&hash.finalize())
    }

    pub(crate) fn is_form_token(&self, form_token: &str) -> bool {
        self.form_token().as_bytes().ct_eq(form_token.as_bytes()).into()
    }

    /// Builds the header that sets the cookie, for `seconds` or until the browser closes.
    pub(crate) fn cookie(&self, headers: &HeaderMap, uri: &Uri, seconds: Option<u64>) -> SetCookie {
        build_cookie(&hex(&self.0), is_local(headers, uri), seconds)
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

pub(crate) type SetCookie = [(HeaderName, HeaderValue); 1];

/// Builds the header that removes the cookie.
pub(crate) fn removal(headers: &HeaderMap, uri: &Uri) -> SetCookie {
    build_cookie("", is_local(headers, uri), Some(0))
}

fn build_cookie(value: &str, is_local_connection: bool, seconds: Option<u64>) -> SetCookie {
    let (name, secure) = if is_local_connection { (LOCAL_NAME, "") } else { (NAME, " Secure;") };
    let age = seconds.map_or_else(String::new, |seconds| format!(" Max-Age={seconds};"));
    let text = format!("{name}={value}; Path=/;{secure}{age} HttpOnly; SameSite=Strict");
    [(header::SET_COOKIE, HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")))]
}

/// True if the browser calls a server on its own machine without TLS. Decided by the name in the address: only a loopback name
/// always leads to the same machine.
pub(super) fn is_local(headers: &HeaderMap, uri: &Uri) -> bool {
    let is_forwarded_tls = headers
        .get(HeaderName::from_static("x-forwarded-proto"))
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"https"));
    let host = authority(headers, uri).unwrap_or("");
    let name = match host.strip_prefix('[').and_then(|after_bracket| after_bracket.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    // Behind a proxy with TLS, the browser accepts a secure cookie also for a loopback name.
    is_loopback && !is_forwarded_tls
}

/// Host and port in the request.
pub(super) fn authority<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.or_else(|| uri.authority().map(http::uri::Authority::as_str))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn plain_cookie_is_set_only_for_loopback_without_tls() {
        let (token, uri) = (SessionToken([7; BYTES]), Uri::from_static("/"));
        for (host, local) in [
            ("localhost:8081", true),
            ("127.0.0.1:8081", true),
            ("[::1]:8081", true),
            ("[::1]", true),
            ("localhost.example", false),
            ("127.0.0.1.example:80", false),
            ("console.example", false),
            ("", false),
        ] {
            let [(_, cookie)] = token.cookie(&headers(&[("host", host)]), &uri, Some(9));
            let cookie = cookie.to_str().unwrap().to_owned();
            assert_eq!(cookie.starts_with("tidegate="), local, "{host}: {cookie}");
            assert_eq!(cookie.starts_with("__Host-tidegate="), !local, "{host}: {cookie}");
            assert_eq!(cookie.contains("; Secure;"), !local, "{host}: {cookie}");
            assert!(cookie.contains("; Max-Age=9; HttpOnly; SameSite=Strict"), "{cookie}");
        }
        let forwarded = headers(&[("host", "localhost"), ("x-forwarded-proto", "https")]);
        assert!(token.cookie(&forwarded, &uri, None)[0].1.to_str().unwrap().starts_with("__Host-"));
    }

    #[test]
    fn plain_cookie_is_ignored_on_other_hosts() {
        let (text, uri) = (hex(&[7; BYTES]), Uri::from_static("/"));
        let of = |host: &str, cookie: &str| {
            SessionToken::from_cookie(
                &headers(&[("host", host), ("cookie", "a=b; c"), ("cookie", cookie)]),
                &uri,
            )
        };
        assert_eq!(of("localhost", &format!("x=1; tidegate={text}")), Some(SessionToken([7; BYTES])));
        assert_eq!(of("console.example", &format!("tidegate={text}")), None);
        assert_eq!(of("console.example", &format!("__Host-tidegate={text}")), Some(SessionToken([7; BYTES])));
        assert_eq!(of("localhost", "tidegate=07"), None);
        let other = hex(&[8; BYTES]);
        assert_eq!(
            of("localhost", &format!("tidegate={other}; __Host-tidegate={text}")),
            Some(SessionToken([7; BYTES]))
        );
    }

    #[test]
    fn token_its_hash_and_its_form_token_all_differ() {
        let token = SessionToken([7; BYTES]);
        assert!(token.is_form_token(&token.form_token()));
        assert!(!token.is_form_token("") && !token.is_form_token(&token.hash()));
        assert!(!SessionToken([8; BYTES]).is_form_token(&token.form_token()));
        assert_ne!(token.hash(), token.form_token());
        assert_eq!(format!("{token:?}"), "Token(***)");
    }
}
