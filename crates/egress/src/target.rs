//! Validates the text of URLs to call. The guard checks the address when a URL is used.

use std::net::IpAddr;

use url::{Host, Url};

/// Greatest length of a URL in bytes.
pub const MAX_LENGTH: usize = 2_000;

/// Ports of services that could interpret a request as a command: the Fetch standard's list from 1024 on.
const DENIED_PORTS: [u16; 17] =
    [1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6697];

/// URL that may be called. `Debug` and errors hide it, because queries contain credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Target(Url);

/// Reason for refusing a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("the URL is longer than {MAX_LENGTH} bytes")]
    TooLong,
    #[error("the URL cannot be read")]
    Syntax,
    #[error("the URL's scheme is neither https nor http")]
    Scheme,
    #[error("the URL carries a user name or password")]
    Userinfo,
    #[error("the URL has no host")]
    Host,
    #[error("the URL's port is neither 80 nor 443 nor one from 1024 on that is free for HTTP")]
    Port,
}

impl UrlError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::TooLong => "url_too_long",
            Self::Syntax => "url_syntax",
            Self::Scheme => "url_scheme",
            Self::Userinfo => "url_userinfo",
            Self::Host => "url_host",
            Self::Port => "url_port",
        }
    }
}

impl Target {
    /// Validates a URL: http(s), no credentials, a host, a port that may speak HTTP, at most [`MAX_LENGTH`]
    /// bytes.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > MAX_LENGTH {
            return Err(UrlError::TooLong);
        }
        let url = Url::parse(text).map_err(|error| match error {
            url::ParseError::EmptyHost => UrlError::Host,
            _ => UrlError::Syntax,
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Userinfo);
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(UrlError::Host);
        }
        let port = url.port_or_known_default().ok_or(UrlError::Port)?;
        // Ports below 1024 belong to other services, which could interpret the request as a command.
        if (port < 1024 && port != 80 && port != 443) || DENIED_PORTS.contains(&port) {
            return Err(UrlError::Port);
        }
        Ok(Self(url))
    }

    /// Returns the address if the host is an IP literal in any notation. The resolver is not called for such
    /// a host.
    pub fn ip_literal(&self) -> Option<IpAddr> {
        match self.0.host()? {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }

    /// Returns the host without the port.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// Returns the normalized URL without the fragment, which is never sent. Unsuitable for logs, because it
    /// contains the query.
    pub fn normalized(&self) -> String {
        let mut url = self.0.clone();
        url.set_fragment(None);
        url.into()
    }

    /// Returns the URL for logs, without the query, which may contain a signature.
    pub fn for_log(&self) -> String {
        let mut url = self.0.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.into()
    }

    pub(crate) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Resolves a relative reference, and validates the result like any other URL.
    pub(crate) fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let resolved_url = self.0.join(reference).map_err(|_| UrlError::Syntax)?;
        Self::parse(resolved_url.as_str())
    }

    pub(crate) fn into_url(self) -> Url {
        self.0
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Target(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn only_http_urls_with_host_and_without_credentials_are_called() {
        for (text, fault) in [
            ("ftp://example.com/", UrlError::Scheme),
            ("file:///etc/passwd", UrlError::Scheme),
            ("gopher://example.com/", UrlError::Scheme),
            ("unix:/run/x.sock", UrlError::Scheme),
            ("example.com/hook", UrlError::Syntax),
            ("//example.com/hook", UrlError::Syntax),
            ("", UrlError::Syntax),
            ("https://", UrlError::Host),
            ("https://user@example.com/", UrlError::Userinfo),
            ("https://user:pass@example.com/", UrlError::Userinfo),
            ("https://:pass@example.com/", UrlError::Userinfo),
            ("https://example.com@127.0.0.1/", UrlError::Userinfo),
            ("https://[fe80::1%25eth0]/", UrlError::Syntax),
            ("https://example.com:22/", UrlError::Port),
            ("https://example.com:0/", UrlError::Port),
            ("https://example.com:6667/", UrlError::Port),
            ("https://example.com:65536/", UrlError::Syntax),
        ] {
            assert_eq!(Target::parse(text).err(), Some(fault), "{text}");
        }
        for text in [
            "https://example.com/hook?key=1",
            "http://example.com",
            "https://example.com:8443/",
            "http://a:80/",
        ] {
            assert!(Target::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn normalized_url_is_the_same_for_every_notation() {
        let normalized = |text: &str| Target::parse(text).unwrap().normalized();
        for text in [
            "https://example.com/a/b?key=1",
            " HTTPS://EXAMPLE.com:443/a/b?key=1#part",
            "https:\\\\example.com/c/../a/./b?key=1#",
            "https://ex%61mple.com/%2e/a/b?key=1",
        ] {
            assert_eq!(normalized(text), "https://example.com/a/b?key=1", "{text}");
        }
        for other in [
            "https://example.com/a/b",
            "https://example.com/a/b?key=2",
            "https://example.com/a/b?key=1&",
            "https://example.com/A/b?key=1",
            "https://example.com/a/%62?key=1",
            "http://example.com/a/b?key=1",
            "https://example.com:8443/a/b?key=1",
        ] {
            assert_ne!(normalized(other), "https://example.com/a/b?key=1", "{other}");
        }
        assert_eq!(normalized("http://0x7f.1:80/a"), "http://127.0.0.1/a");
    }

    #[test]
    fn a_url_may_have_two_thousand_bytes_and_no_more() {
        let longest = format!("https://example.com/{}", "a".repeat(MAX_LENGTH - 20));
        assert_eq!(longest.len(), MAX_LENGTH);
        assert!(Target::parse(&longest).is_ok());
        assert_eq!(Target::parse(&format!("{longest}a")).err(), Some(UrlError::TooLong));
    }

    #[test]
    fn all_notations_of_an_address_are_recognised() {
        for host in [
            "127.0.0.1",
            "0x7f.1",
            "2130706433",
            "127.1",
            "0177.0.0.1",
            "127.0.0.1.",
            "①②⑦.⓪.⓪.①",
            "%31%32%37.0.0.1",
            "127。0。0。1",
        ] {
            let target = Target::parse(&format!("http://{host}/")).unwrap();
            assert_eq!(target.ip_literal(), Some("127.0.0.1".parse().unwrap()), "{host}");
        }
        assert_eq!(Target::parse("http://0/").unwrap().ip_literal(), Some("0.0.0.0".parse().unwrap()));
        assert_eq!(
            Target::parse("http://[::ffff:7f00:1]/").unwrap().ip_literal(),
            Some("::ffff:127.0.0.1".parse().unwrap())
        );
        assert_eq!(Target::parse("http://localhost/").unwrap().ip_literal(), None);
    }

    proptest! {
        #[test]
        fn any_ipv4_notation_is_recognised(bits in any::<u32>(), wide in any::<u128>()) {
            let [a, b, c, d] = bits.to_be_bytes();
            let (low24, low16) = (bits & 0xff_ffff, bits & 0xffff);
            for host in [
                format!("{bits}"), format!("{bits:#x}"), format!("0{bits:o}"), format!("{a}.{low24}"),
                format!("{a:#X}.{b}.{low16}"), format!("0{a:o}.{b:#x}.{c}.{d}"), format!("{a}.{b}.{c}.{d}."),
                percent(&format!("{a}.{low24}")),
            ] {
                let target = Target::parse(&format!("http://{host}:8080/")).unwrap();
                prop_assert_eq!(target.ip_literal(), Some(IpAddr::from([a, b, c, d])), "{}", host);
            }
            let address = std::net::Ipv6Addr::from_bits(wide);
            for host in [format!("[{address}]"), format!("[{address:?}]").to_uppercase()] {
                prop_assert_eq!(Target::parse(&format!("https://{host}/")).unwrap().ip_literal(), Some(address.into()));
            }
        }

        #[test]
        fn any_text_can_be_checked_without_a_panic(text in ".*", host in "[^/]{0,40}") {
            drop((Target::parse(&text), Target::parse(&format!("http://{host}/"))));
        }
    }

    fn percent(text: &str) -> String {
        text.bytes().map(|byte| format!("%{byte:02x}")).collect()
    }

    #[test]
    fn debug_output_hides_the_url() {
        let text = format!("{:?}", Target::parse("https://example.com/?token=abc").unwrap());
        assert!(!text.contains("example") && !text.contains("abc"));
    }
}
