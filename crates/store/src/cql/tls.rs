//! TLS to the servers, by OpenSSL, in builds with the feature `tls`.
//!
//! OpenSSL verifies certificates, and the driver has it compare the address of the node.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Error of a build without the feature for settings with a `tls` section.
pub(super) const NO_TLS: &str = "tls needs a program that was built with the feature `tls`";

/// Trusted certificates, and the client certificate for nodes that ask for one.
///
/// A node's certificate must name the IP address of the node, because the driver does not know host names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM file of certificate authorities. No others are trusted.
    pub ca_file: PathBuf,
    /// PEM file of our certificate and its intermediate certificates. Default none.
    pub certificate_file: Option<PathBuf>,
    /// PEM file of its private key, unencrypted. Default none.
    pub key_file: Option<PathBuf>,
}

/// Reason of the last refused certificate. The driver reports only that the handshake failed.
#[derive(Clone, Default)]
pub(super) struct CertificateRefusal(Arc<Mutex<Option<String>>>);

impl CertificateRefusal {
    pub(super) fn reason(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

#[cfg(feature = "tls")]
pub(super) use self::built::{check_files, secure};
#[cfg(not(feature = "tls"))]
pub(super) use self::not_built::{check_files, secure};

#[cfg(not(feature = "tls"))]
mod not_built {
    use scylla::client::session_builder::SessionBuilder;

    use super::{CertificateRefusal, NO_TLS, Tls};
    use crate::Error;

    pub(crate) fn secure(
        _: SessionBuilder,
        _: &Tls,
        _: &CertificateRefusal,
    ) -> Result<SessionBuilder, Error> {
        Err(Error::Settings(NO_TLS.to_owned()))
    }

    pub(crate) fn check_files(_: &Tls) -> Result<(), Error> {
        Err(Error::Settings(NO_TLS.to_owned()))
    }
}

#[cfg(feature = "tls")]
mod built {
    use std::path::Path;

    use openssl::{
        error::ErrorStack,
        pkey::{PKey, Private},
        ssl::{SslConnector, SslConnectorBuilder, SslMethod, SslVerifyMode, SslVersion},
        x509::{X509, X509StoreContextRef, store::X509StoreBuilder},
    };
    use scylla::client::{session::OpenSsl010Config, session_builder::SessionBuilder};

    use super::{CertificateRefusal, Tls};
    use crate::Error;

    pub(crate) fn secure(
        builder: SessionBuilder,
        settings: &Tls,
        refusal: &CertificateRefusal,
    ) -> Result<SessionBuilder, Error> {
        let tls = build_connector(settings, refusal)?;
        Ok(builder.tls_context(Some(OpenSsl010Config::new(tls))))
    }

    pub(crate) fn check_files(settings: &Tls) -> Result<(), Error> {
        build_connector(settings, &CertificateRefusal::default()).map(drop)
    }

    fn build_connector(settings: &Tls, refusal: &CertificateRefusal) -> Result<SslConnectorBuilder, Error> {
        let mut tls =
            new_connector(refusal.clone()).map_err(|error| Error::Settings(format!("tls: {error}")))?;
        trust_authorities(&mut tls, &settings.ca_file)?;
        if let (Some(certificate), Some(key)) = (&settings.certificate_file, &settings.key_file) {
            set_client_certificate(&mut tls, certificate, key)?;
        }
        Ok(tls)
    }

    fn new_connector(refusal: CertificateRefusal) -> Result<SslConnectorBuilder, ErrorStack> {
        let mut tls = SslConnector::builder(SslMethod::tls_client())?;
        tls.set_min_proto_version(Some(SslVersion::TLS1_2))?;
        tls.set_verify_callback(SslVerifyMode::PEER, move |is_verified, chain| {
            if !is_verified {
                // The driver drops this reason, so it is kept for the error of the session.
                let reason = describe_refusal(chain);
                tracing::warn!("{reason}");
                *refusal.0.lock() = Some(reason);
            }
            is_verified
        });
        Ok(tls)
    }

    fn describe_refusal(chain: &X509StoreContextRef) -> String {
        let subject = chain.current_cert().map_or_else(
            || "a certificate".to_owned(),
            |certificate| format!("the certificate of {:?}", certificate.subject_name()),
        );
        format!("{subject} is refused: {}", chain.error())
    }

    /// Trusts the authorities of the file, and none of the system.
    fn trust_authorities(tls: &mut SslConnectorBuilder, file: &Path) -> Result<(), Error> {
        let authorities = certificates("tls.ca_file", file)?;
        let store = || {
            let mut store = X509StoreBuilder::new()?;
            for authority in authorities {
                store.add_cert(authority)?;
            }
            Ok(store.build())
        };
        tls.set_cert_store(store().map_err(|error: ErrorStack| fault("tls.ca_file", file, error))?);
        Ok(())
    }

    fn set_client_certificate(
        tls: &mut SslConnectorBuilder,
        certificate_file: &Path,
        key_file: &Path,
    ) -> Result<(), Error> {
        let mut chain = certificates("tls.certificate_file", certificate_file)?.into_iter();
        let to_fault = |error: ErrorStack| fault("tls.certificate_file", certificate_file, error);
        if let Some(certificate) = chain.next() {
            tls.set_certificate(&certificate).map_err(to_fault)?;
        }
        for intermediate in chain {
            tls.add_extra_chain_cert(intermediate).map_err(to_fault)?;
        }
        let key = private_key(key_file)?;
        tls.set_private_key(&key).and_then(|()| tls.check_private_key()).map_err(|error| {
            fault("tls.key_file", key_file, format!("not the key of {}: {error}", certificate_file.display()))
        })
    }

    fn certificates(setting: &str, file: &Path) -> Result<Vec<X509>, Error> {
        match X509::stack_from_pem(&read(setting, file)?) {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(fault(setting, file, "there is no certificate in it, in PEM")),
            Err(error) => Err(fault(setting, file, error)),
        }
    }

    fn private_key(file: &Path) -> Result<PKey<Private>, Error> {
        let (pem, mut is_encrypted) = (read("tls.key_file", file)?, false);
        // Without a callback OpenSSL would ask for the password on the terminal.
        let key = PKey::private_key_from_pem_callback(&pem, |_| {
            is_encrypted = true;
            Ok(0)
        });
        key.map_err(|error| match is_encrypted {
            true => fault("tls.key_file", file, "the key is encrypted, which is not supported"),
            false => fault("tls.key_file", file, format!("there is no private key in it, in PEM: {error}")),
        })
    }

    fn read(setting: &str, file: &Path) -> Result<Vec<u8>, Error> {
        std::fs::read(file).map_err(|error| fault(setting, file, error))
    }

    fn fault(setting: &str, file: &Path, error: impl std::fmt::Display) -> Error {
        Error::Settings(format!("{setting} {}: {error}", file.display()))
    }
}
