//! One certificate for all contestants.

use std::path::{Path, PathBuf};

/// Where the certificate and its key are.
pub(crate) fn paths(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("certificate.pem"), folder.join("key.pem"))
}

/// Writes a self-signed certificate for the loopback address and its key as PEM files.
pub(crate) fn write(certificate: &Path, key: &Path) -> Result<(), String> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| format!("no certificate can be made: {error}"))?;
    save(certificate, &made.cert.pem())?;
    save(key, &made.signing_key.serialize_pem())
}

/// Writes a text, or says why it cannot.
pub(crate) fn save(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text)
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
