//! One certificate for all contestants.

use std::path::{Path, PathBuf};

use super::DoublingError;

/// Writes a self-signed certificate for the loopback address and its key as PEM files.
pub(super) fn write(folder: &Path) -> Result<(PathBuf, PathBuf), DoublingError> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| DoublingError::Output(format!("no certificate can be made: {error}")))?;
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    save(&certificate, &made.cert.pem())?;
    save(&key, &made.signing_key.serialize_pem())?;
    Ok((certificate, key))
}

/// Writes a text, or says why it cannot.
pub(super) fn save(path: &Path, text: &str) -> Result<(), DoublingError> {
    std::fs::write(path, text).map_err(|error| {
        DoublingError::Output(format!("{} cannot be written: {error}", path.display()))
    })
}
