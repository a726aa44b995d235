//! One certificate for all contestants.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// Where the certificate and its key are.
pub(crate) fn paths(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("certificate.pem"), folder.join("key.pem"))
}

/// Where both are in one file, as some programs want them.
pub(crate) fn combined(certificate: &Path) -> PathBuf {
    certificate.with_file_name("certificate_and_key.pem")
}

/// Writes a self-signed certificate for the loopback address and the server's end of a link, and
/// its key, as PEM files, each alone and both together.
pub(crate) fn write(certificate: &Path, key: &Path) -> Result<(), String> {
    write_for(Ipv4Addr::LOCALHOST.into(), certificate, key)
}

/// The same with a further address.
pub(crate) fn write_for(address: IpAddr, certificate: &Path, key: &Path) -> Result<(), String> {
    let link_end = crate::link::SERVER_ADDRESS.to_string();
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), link_end];
    names.push(address.to_string());
    names.dedup();
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| format!("no certificate can be made: {error}"))?;
    let (public, private) = (made.cert.pem(), made.signing_key.serialize_pem());
    save(certificate, &public)?;
    save(key, &private)?;
    save(&combined(certificate), &(public + &private))
}

/// Writes a text, or says why it cannot.
pub(crate) fn save(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text)
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
