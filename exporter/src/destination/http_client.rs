//! HTTP client for buckets. The operator alone names their servers, so it is not the guarded client of outgoing calls.

use std::{path::Path, sync::Arc, time::Duration};

use object_store::{
    ClientOptions,
    client::{HttpClient, HttpConnector},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time of a whole request, which sends or reads one part of a file.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Gives the S3 client an HTTP client that exists already.
#[derive(Debug)]
pub(super) struct Connector(pub(super) reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// Creates a client that trusts the machine's certificate authorities and those of the file.
pub(super) fn create_client(ca_file: Option<&Path>) -> Result<reqwest::Client, String> {
    let mut roots = RootCertStore::empty();
    // Unparsable certificates are skipped: one defective file in the system's store must not prevent the start.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let initial_count = roots.len();
        let to_error = |reason: String| format!("ca_file = {}: {reason}", path.display());
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| to_error(error.to_string()))? {
            let certificate = certificate.map_err(|error| to_error(error.to_string()))?;
            roots.add(certificate).map_err(|error| to_error(error.to_string()))?;
        }
        // Probably the wrong file. Without an error here, the first request would fail.
        if roots.len() == initial_count {
            return Err(to_error("holds no certificate".to_owned()));
        }
    }
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    #[expect(clippy::disallowed_methods, reason = "the operator alone names the server of a bucket")]
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        // A redirect could send the signature to another host.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .tls_backend_preconfigured(tls);
    client.build().map_err(|error| format!("the client cannot be set up: {}", error.without_url()))
}
