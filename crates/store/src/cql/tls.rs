//! TLS to the servers as the driver takes it: by OpenSSL, in builds with the feature `tls`.
//!
//! It verifies nothing itself: OpenSSL does, and the driver has it compare a node's address.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Refusal of settings that a build without the feature cannot follow.
pub(super) const NO_TLS: &str = "tls needs a program that was built with the feature `tls`";

/// Trusted certificates, and the client certificate for nodes that ask for one.
///
/// A node's certificate must name the IP address that the node is reached at: the driver knows no names of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// A PEM file of certificate authorities. No others are trusted.
    pub ca_file: PathBuf,
    /// A PEM file of our certificate, and of those between it and its authority. Default none.
    pub certificate_file: Option<PathBuf>,
    /// A PEM file of its private key, which is not encrypted. Default none.
    pub key_file: Option<PathBuf>,
}

/// Last objection to a certificate. The driver hears only that the handshake failed.
#[derive(Clone, Default)]
pub(super) struct Objection(Arc<Mutex<Option<String>>>);

impl Objection {
    pub(super) fn raised(&self) -> Option<String> {
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

    use super::{NO_TLS, Objection, Tls};
    use crate::Error;

    pub(crate) fn secure(_: SessionBuilder, _: &Tls, _: &Objection) -> Result<SessionBuilder, Error> {
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

    use super::{Objection, Tls};
    use crate::Error;

    pub(crate) fn secure(
        builder: SessionBuilder,
        settings: &Tls,
        objection: &Objection,
    ) -> Result<SessionBuilder, Error> {
        let tls = connector(settings, objection)?;
        Ok(builder.tls_context(Some(OpenSsl010Config::new(tls))))
    }

    pub(crate) fn check_files(settings: &Tls) -> Result<(), Error> {
        connector(settings, &Objection::default()).map(drop)
    }

    fn connector(settings: &Tls, objection: &Objection) -> Result<SslConnectorBuilder, Error> {
        let mut tls = base(objection.clone()).map_err(|why| Error::Settings(format!("tls: {why}")))?;
        trust(&mut tls, &settings.ca_file)?;
        if let (Some(certificate), Some(key)) = (&settings.certificate_file, &settings.key_file) {
            show(&mut tls, certificate, key)?;
        }
        Ok(tls)
    }

    fn base(objection: Objection) -> Result<SslConnectorBuilder, ErrorStack> {
        let mut tls = SslConnector::builder(SslMethod::tls_client())?;
        tls.set_min_proto_version(Some(SslVersion::TLS1_2))?;
        tls.set_verify_callback(SslVerifyMode::PEER, move |is_good, chain| {
            if !is_good {
                let why = said_against(chain);
                tracing::warn!("{why}");
                *objection.0.lock() = Some(why);
            }
            is_good
        });
        Ok(tls)
    }

    fn said_against(chain: &X509StoreContextRef) -> String {
        let whose = chain.current_cert().map_or_else(
            || "a certificate".to_owned(),
            |certificate| format!("the certificate of {:?}", certificate.subject_name()),
        );
        format!("{whose} is refused: {}", chain.error())
    }

    /// Those of the file, and nobody whom the system may trust.
    fn trust(tls: &mut SslConnectorBuilder, file: &Path) -> Result<(), Error> {
        let authorities = certificates("tls.ca_file", file)?;
        let store = || {
            let mut store = X509StoreBuilder::new()?;
            for authority in authorities {
                store.add_cert(authority)?;
            }
            Ok(store.build())
        };
        tls.set_cert_store(store().map_err(|why: ErrorStack| fault("tls.ca_file", file, why))?);
        Ok(())
    }

    fn show(tls: &mut SslConnectorBuilder, certificate: &Path, key: &Path) -> Result<(), Error> {
        let mut chain = certificates("tls.certificate_file", certificate)?.into_iter();
        let wrong = |why: ErrorStack| fault("tls.certificate_file", certificate, why);
        if let Some(ours) = chain.next() {
            tls.set_certificate(&ours).map_err(wrong)?;
        }
        for between in chain {
            tls.add_extra_chain_cert(between).map_err(wrong)?;
        }
        let ours = private_key(key)?;
        tls.set_private_key(&ours).and_then(|()| tls.check_private_key()).map_err(|why| {
            fault("tls.key_file", key, format!("not the key of {}: {why}", certificate.display()))
        })
    }

    fn certificates(setting: &str, file: &Path) -> Result<Vec<X509>, Error> {
        match X509::stack_from_pem(&read(setting, file)?) {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(fault(setting, file, "there is no certificate in it, in PEM")),
            Err(why) => Err(fault(setting, file, why)),
        }
    }

    fn private_key(file: &Path) -> Result<PKey<Private>, Error> {
        let (pem, mut is_encrypted) = (read("tls.key_file", file)?, false);
        // Without a callback OpenSSL would ask for the password on the terminal.
        let key = PKey::private_key_from_pem_callback(&pem, |_| {
            is_encrypted = true;
            Ok(0)
        });
        key.map_err(|why| match is_encrypted {
            true => fault("tls.key_file", file, "the key is encrypted, which is not supported"),
            false => fault("tls.key_file", file, format!("there is no private key in it, in PEM: {why}")),
        })
    }

    fn read(setting: &str, file: &Path) -> Result<Vec<u8>, Error> {
        std::fs::read(file).map_err(|why| fault(setting, file, why))
    }

    fn fault(setting: &str, file: &Path, why: impl std::fmt::Display) -> Error {
        Error::Settings(format!("{setting} {}: {why}", file.display()))
    }
}
