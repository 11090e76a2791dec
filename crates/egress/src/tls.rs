//! TLS configuration: trusts the machine's certificate authorities and those of `egress.ca_file`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Error of creating the TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("egress.ca_file = {}: {reason}", path.display())]
    CaFile { path: PathBuf, reason: String },
    #[error(
        "this machine has no CA certificates, so no https receiver can be verified: install the package \
         ca-certificates, or set egress.ca_file"
    )]
    NoCaCertificates,
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

impl TlsError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::CaFile { .. } => "ca_file",
            Self::NoCaCertificates => "no_ca_certificates",
            Self::Setup(_) => "tls_setup",
        }
    }
}

pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, TlsError> {
    let roots = trusted_roots(rustls_native_certs::load_native_certs().certs, ca_file)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // HTTP/2 is not offered: a stalled connection would block all of its streams.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn trusted_roots(
    native: Vec<CertificateDer<'static>>,
    ca_file: Option<&Path>,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // Unparsable certificates are skipped: one defective file in the system's store must not prevent the start.
    roots.add_parsable_certificates(native);
    if let Some(path) = ca_file {
        let error = |reason: String| TlsError::CaFile { path: path.to_owned(), reason };
        let initial_count = roots.len();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|cause| error(cause.to_string()))? {
            let certificate = certificate.map_err(|cause| error(cause.to_string()))?;
            roots.add(certificate).map_err(|cause| error(cause.to_string()))?;
        }
        // Probably the wrong file. Without an error here, the first call to a receiver would fail.
        if roots.len() == initial_count {
            return Err(error("holds no certificate".to_owned()));
        }
    }
    if roots.is_empty() { Err(TlsError::NoCaCertificates) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn machine_without_ca_certificates_names_the_package() {
        let error = trusted_roots(Vec::new(), None).unwrap_err();
        assert_eq!(error.tag(), "no_ca_certificates");
        assert!(error.to_string().contains("ca-certificates"), "{error}");
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/certificates/ca.pem");
        assert_eq!(trusted_roots(Vec::new(), Some(Path::new(own))).unwrap().len(), 1);
    }
}
