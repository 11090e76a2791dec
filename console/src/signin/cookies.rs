//! The one cookie of the console: a random token, with the name that the connection allows.
//!
//! Before the sign-in the token only ties forms to the browser that asked for them; the sign-in replaces it.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;
use tidegate_schemas::hex::{decode, hex};
use tidegate_web::Problem;

/// Name of a cookie that only a page of this very host over TLS can set.
const NAME: &str = "__Host-tidegate";
/// Name for a browser that talks to its own machine without TLS.
const LOCAL_NAME: &str = "tidegate";
const BYTES: usize = 32;

/// Token of a cookie. It is never printed, and the store has its hash only.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token([u8; BYTES]);

impl Token {
    pub(crate) fn random() -> Result<Self, Problem> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            tracing::error!(%error, "the system gives no random bytes");
            Problem::internal()
        })?;
        Ok(Self(bytes))
    }

    /// Returns the token of a request's cookie.
    pub(crate) fn of(headers: &HeaderMap, uri: &Uri) -> Option<Self> {
        let local = is_local(headers, uri);
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs: Vec<_> =
            cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('=')).collect();
        let named = |wanted: &str| pairs.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let text = named(NAME).or_else(|| named(LOCAL_NAME).filter(|_| local))?;
        decode(text).map(Self)
    }

    /// Name of the session in the store.
    pub(crate) fn hash(&self) -> String {
        hex(&Sha256::digest(self.0))
    }

    /// Value that forms carry beside the cookie. It says nothing about the token.
    pub(crate) fn form_token(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"tidegate form\0");
        hash.update(self.0);
        hex(&hash.finalize())
    }

    pub(crate) fn is_form_token(&self, sent: &str) -> bool {
        self.form_token().as_bytes().ct_eq(sent.as_bytes()).into()
    }

    /// The header that sets the cookie: for so many seconds, or until the browser ends.
    pub(crate) fn cookie(&self, headers: &HeaderMap, uri: &Uri, seconds: Option<u64>) -> SetCookie {
        set(&hex(&self.0), is_local(headers, uri), seconds)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

pub(crate) type SetCookie = [(HeaderName, HeaderValue); 1];

/// The header that removes the cookie.
pub(crate) fn removed(headers: &HeaderMap, uri: &Uri) -> SetCookie {
    set("", is_local(headers, uri), Some(0))
}

fn set(value: &str, local: bool, seconds: Option<u64>) -> SetCookie {
    let (name, secure) = if local { (LOCAL_NAME, "") } else { (NAME, " Secure;") };
    let age = seconds.map_or_else(String::new, |seconds| format!(" Max-Age={seconds};"));
    let text = format!("{name}={value}; Path=/;{secure}{age} HttpOnly; SameSite=Strict");
    [(header::SET_COOKIE, HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")))]
}

/// True if the browser calls a server on its own machine without TLS. The name in the address decides: only a loopback name
/// leads there whatever the network does.
pub(super) fn is_local(headers: &HeaderMap, uri: &Uri) -> bool {
    let is_forwarded_tls = headers
        .get(HeaderName::from_static("x-forwarded-proto"))
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"https"));
    let host = authority(headers, uri).unwrap_or("");
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback && !is_forwarded_tls
}

/// Host and port that the request names.
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
    fn only_a_loopback_name_without_tls_has_the_plain_cookie() {
        let (token, uri) = (Token([7; BYTES]), Uri::from_static("/"));
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
    fn the_plain_cookie_is_not_read_on_another_host() {
        let (text, uri) = (hex(&[7; BYTES]), Uri::from_static("/"));
        let of = |host: &str, cookie: &str| {
            Token::of(&headers(&[("host", host), ("cookie", "a=b; c"), ("cookie", cookie)]), &uri)
        };
        assert_eq!(of("localhost", &format!("x=1; tidegate={text}")), Some(Token([7; BYTES])));
        assert_eq!(of("console.example", &format!("tidegate={text}")), None);
        assert_eq!(of("console.example", &format!("__Host-tidegate={text}")), Some(Token([7; BYTES])));
        assert_eq!(of("localhost", "tidegate=07"), None);
        let other = hex(&[8; BYTES]);
        assert_eq!(
            of("localhost", &format!("tidegate={other}; __Host-tidegate={text}")),
            Some(Token([7; BYTES]))
        );
    }

    #[test]
    fn hash_form_token_and_token_differ_and_nothing_prints_the_token() {
        let token = Token([7; BYTES]);
        assert!(token.is_form_token(&token.form_token()));
        assert!(!token.is_form_token("") && !token.is_form_token(&token.hash()));
        assert!(!Token([8; BYTES]).is_form_token(&token.form_token()));
        assert_ne!(token.hash(), token.form_token());
        assert_eq!(format!("{token:?}"), "Token(***)");
    }
}
