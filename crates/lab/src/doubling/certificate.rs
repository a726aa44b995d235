//! One certificate for all contestants.

use std::path::{Path, PathBuf};

use super::DoublingError;

/// Where the certificate and its key are.
pub(super) fn paths(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("certificate.pem"), folder.join("key.pem"))
}

/// Writes a self-signed certificate for the loopback address and its key as PEM files.
pub(super) fn write(certificate: &Path, key: &Path) -> Result<(), DoublingError> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| DoublingError::Output(format!("no certificate can be made: {error}")))?;
    save(certificate, &made.cert.pem())?;
    save(key, &made.signing_key.serialize_pem())
}

/// Writes a text, or says why it cannot.
pub(super) fn save(path: &Path, text: &str) -> Result<(), DoublingError> {
    std::fs::write(path, text).map_err(|error| {
        DoublingError::Output(format!("{} cannot be written: {error}", path.display()))
    })
}
