//! The configuration of LAppS, `ws.json` and `lapps.json`, as a `moonwire.toml`.
//!
//! Everything that LAppS calls otherwise, or does otherwise by default, is decided here; what comes
//! out is read like any other configuration.

mod reader;
mod services;
mod ws;

use std::env;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{ConfigError, Overrides};
use reader::Reader;

/// Where LAppS is installed, and its two files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LappsHome {
    home: PathBuf,
    ws: PathBuf,
    lapps: PathBuf,
}

/// A configuration of LAppS in our words.
#[derive(Debug, Eq, PartialEq)]
pub struct LappsConversion {
    /// The same as a `moonwire.toml`.
    pub toml: String,
    /// What of it has no effect here, a sentence each.
    pub remarks: Vec<String>,
    /// The folder of the services, for `LAPPS_APPS_DIR`.
    pub apps: PathBuf,
    /// What is added to `LUA_PATH`: each service finds the modules of all.
    pub module_path: String,
    /// What its files need to be served, for the sentence that says what is missing.
    needs: Needs,
}

/// What must be there, and the file that says so.
#[derive(Debug, Eq, PartialEq)]
struct Needs {
    ws: PathBuf,
    lapps: PathBuf,
    has_services: bool,
    certificates: Vec<Certificate>,
}

/// A file of TLS: the key of `tls_certificates` that names it, or its path by default.
#[derive(Debug, Eq, PartialEq)]
struct Certificate {
    key: &'static str,
    path: String,
    is_named: bool,
    /// Whether clients see it, which `--dev-tls` replaces.
    is_of_server: bool,
}

impl LappsHome {
    /// The home that was asked for, else that of `LAPPS_HOME`, else /opt/lapps; the files in
    /// `LAPPS_CONF_DIR`, else etc/conf of the home, called as `WS_CONFIG` and `LAPPS_CONFIG` say.
    pub fn find(asked: Option<&Path>) -> Self {
        Self::with(asked, |name| env::var_os(name).map(PathBuf::from))
    }

    fn with(asked: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.as_os_str().is_empty());
        let home = asked
            .map(Path::to_owned)
            .or_else(|| variable("LAPPS_HOME"))
            .unwrap_or_else(|| "/opt/lapps".into());
        let folder = variable("LAPPS_CONF_DIR").unwrap_or_else(|| home.join("etc/conf"));
        let file =
            |name, default: &str| folder.join(variable(name).unwrap_or_else(|| default.into()));
        Self {
            ws: file("WS_CONFIG", "ws.json"),
            lapps: file("LAPPS_CONFIG", "lapps.json"),
            home,
        }
    }

    /// Reads both files. One that is not there counts as LAppS has it by default, and is remarked.
    pub fn convert(&self) -> Result<LappsConversion, ConfigError> {
        if !self.home.is_dir() {
            let sentence = "there is no such folder, so no installation of LAppS";
            return Err(ConfigError::of_file(&self.home, sentence));
        }
        let mut remarks = Vec::new();
        let mut root = toml::Table::new();
        let lapps = object(&self.lapps, &mut remarks)?;
        let ws = object(&self.ws, &mut remarks)?;
        let mut ws = Reader::new(&self.ws, ws, &mut remarks);
        let mut certificates = Vec::new();
        let connects = services::connect(&lapps);
        let serves = ws::convert(&mut ws, &mut root, connects, &mut certificates)?;
        ws.finish();
        let mut lapps = Reader::new(&self.lapps, lapps, &mut remarks);
        let (apps, module_path) = services::convert(&mut lapps, &self.home, serves, &mut root)?;
        lapps.finish();
        let toml = toml::to_string_pretty(&root)
            .map_err(|error| ConfigError::new(format!("it cannot be written as TOML: {error}")))?;
        Ok(LappsConversion {
            toml,
            remarks,
            apps,
            module_path,
            needs: Needs {
                ws: self.ws.clone(),
                lapps: self.lapps.clone(),
                has_services: root["services"].as_table().is_some_and(|it| !it.is_empty()),
                certificates,
            },
        })
    }
}

impl LappsConversion {
    /// Whether it can be served, as far as its own files say it. A conversion is right on a machine
    /// that has not what it needs, too.
    pub(super) fn check(&self, overrides: &Overrides) -> Result<(), ConfigError> {
        let needs = &self.needs;
        if !needs.has_services && overrides.apps.is_empty() {
            let sentence = match needs.lapps.exists() {
                true => "no service of it starts; its `services` need one that does",
                false => "there is no such file, so there is no service to start",
            };
            return Err(ConfigError::of_file(&needs.lapps, sentence));
        }
        let needed = needs
            .certificates
            .iter()
            .filter(|it| !(it.is_of_server && overrides.dev_tls));
        for Certificate {
            key,
            path,
            is_named,
            ..
        } in needed
        {
            let Err(error) = std::fs::File::open(path) else {
                continue;
            };
            let verb = match is_named {
                true => "names",
                false => "is not there and means",
            };
            let sentence =
                format!("`tls_certificates.{key}` {verb} {path}, which cannot be read: {error}");
            return Err(ConfigError::of_file(&needs.ws, sentence));
        }
        Ok(())
    }
}

/// The object in a file, or an empty one if there is no file.
fn object(file: &Path, remarks: &mut Vec<String>) -> Result<Map<String, Value>, ConfigError> {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let file = file.display();
            remarks.push(format!(
                "{file}: there is no such file, so everything in it is as LAppS has it by default"
            ));
            return Ok(Map::new());
        }
        Err(error) => {
            let sentence = format!("the configuration cannot be read: {error}");
            return Err(ConfigError::of_file(file, sentence));
        }
    };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ConfigError::of_file(file, "it must be a JSON object")),
        Err(error) => Err(ConfigError::of_file(
            file,
            format!("it is not JSON: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests;
