//! `lapps.json`: directories and services.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moonwire_lua::Module;
use serde_json::Map;
use toml::{Table, Value};

use super::super::ConfigError;
use super::reader::Reader;
use super::ws::{self, Serves};

/// Whether any service connects to other servers.
pub(super) fn connect(lapps: &Map<String, serde_json::Value>) -> bool {
    let services = lapps.get("services").and_then(|all| all.as_object());
    let services = services.into_iter().flat_map(Map::values);
    let mut modules = services
        .filter_map(|service| service.get("preload")?.as_array())
        .flatten();
    modules.any(|module| module.as_str() == Some(Module::Cws.name()))
}

/// Writes `[services.NAME]` for each service that can start; where all of them
/// are, and where Lua finds their modules.
pub(super) fn convert(
    lapps: &mut Reader<'_>,
    home: &Path,
    serves: Serves,
    root: &mut Table,
) -> Result<(PathBuf, String), ConfigError> {
    let mut directories = lapps.object("directories")?;
    let applications = directories.text("applications")?;
    let apps = home.join(applications.as_deref().unwrap_or("apps"));
    for key in ["app_conf_dir", "workdir"] {
        directories.ignore(key, "LAppS does not use it either");
    }
    for key in ["deploy", "tmp"] {
        directories.ignore(key, "archives are not deployed yet");
    }
    directories.finish();
    let mut services = lapps.object("services")?;
    let mut tables = BTreeMap::new();
    let mut module_path = String::new();
    for name in services.keys() {
        module_path.push_str(&format!(";{}/{name}/?.lua", apps.display()));
        let mut service = services.object(&name)?;
        let table = convert_service(&mut service, &apps.join(&name), serves)?;
        service.finish();
        if let Some(table) = table {
            tables.insert(name, table);
        }
    }
    keep_last_of_each_target(&mut services, &mut tables);
    drop_unknown_depends(&mut services, &mut tables);
    services.finish();
    let tables: Table = tables
        .into_iter()
        .map(|(name, table)| (name, Value::Table(table)))
        .collect();
    root.insert("services".into(), tables.into());
    Ok((apps, module_path))
}

/// None if it does not start, which is remarked.
fn convert_service(
    service: &mut Reader<'_>,
    folder: &Path,
    serves: Serves,
) -> Result<Option<Table>, ConfigError> {
    let mut table = Table::new();
    let is_standalone = match (service.boolean("standalone")?, service.boolean("internal")?) {
        (Some(flag), _) | (None, Some(flag)) => flag,
        (None, None) => !service.has("request_target"),
    };
    table.insert("folder".into(), folder.display().to_string().into());
    let instances = service.integer("instances", 0..=4096)?.unwrap_or(1);
    table.insert("instances".into(), instances.into());
    if service.boolean("auto_start")? == Some(false) {
        table.insert("auto_start".into(), false.into());
    }
    let depends: Vec<_> = service
        .texts("depends")?
        .into_iter()
        .map(Value::from)
        .collect();
    table.insert("depends".into(), depends.into());
    let modules = preload(service)?;
    let blocks = |module: &Value| BLOCKING.iter().any(|name| module.as_str() == Some(name));
    if !is_standalone && modules.iter().any(blocks) {
        // It may wait in a callback as long as it likes, and LAppS has a thread for each instance.
        table.insert("execution".into(), "threaded".into());
    }
    table.insert("preload".into(), modules.into());
    if is_standalone {
        table.insert("standalone".into(), true.into());
        for key in REACTIVE {
            service.ignore(key, "a standalone service has no connections");
        }
    } else if !reactive(service, &mut table)? {
        return Ok(None);
    }
    if instances == 0 {
        service.remark("a service with 0 instances does not start");
        return Ok(None);
    }
    Ok((serves || is_standalone).then_some(table))
}

fn preload(service: &mut Reader<'_>) -> Result<Vec<Value>, ConfigError> {
    let mut modules = Vec::new();
    for name in service.texts("preload")? {
        match Module::named(&name) {
            Some(module) => modules.push(Value::from(module.name())),
            None => service.remark(&format!("there is no module `{name}` to preload")),
        }
    }
    Ok(modules)
}

/// The keys of a service with connections; false if it cannot start.
fn reactive(service: &mut Reader<'_>, table: &mut Table) -> Result<bool, ConfigError> {
    let Some(target) = service.text("request_target")? else {
        service.remark("it has no `request_target` and does not start");
        return Ok(false);
    };
    // The query is not looked at here.
    let target = target.split('?').next().unwrap_or_default().to_owned();
    table.insert("target".into(), target.into());
    let protocol = match service.text("protocol")?.as_deref() {
        Some("raw") => "raw",
        Some("LAppS") => "lapps",
        other => {
            let other = other.unwrap_or_default();
            service.remark(&format!(
                "its protocol `{other}` is neither raw nor LAppS, so it does not start"
            ));
            return Ok(false);
        }
    };
    table.insert("protocol".into(), protocol.into());
    // LAppS never calls a function of this name, which a service may have for itself.
    table.insert("handshake_hook".into(), false.into());
    let size = service.integer("max_inbound_message_size", 0..=1 << 30)?;
    if let Some(size) = size {
        // LAppS never refuses what a header of two bytes can tell.
        table.insert("message_bytes_max".into(), size.max(125).into());
    }
    if let Some(alias) = service.text("proto_alias")? {
        table.insert("subprotocol".into(), alias.into());
        table.insert("subprotocol_forced".into(), true.into());
    }
    table.insert("acl".into(), ws::acl(&mut service.object("acl")?)?.into());
    let mut headers = service.object("extra_headers")?;
    let mut fields = Table::new();
    for name in headers.keys() {
        if let Some(value) = headers.text(&name)? {
            fields.insert(name, value.into());
        }
    }
    table.insert("extra_headers".into(), fields.into());
    Ok(true)
}

/// LAppS logs a name that it does not know and goes on.
fn drop_unknown_depends(services: &mut Reader<'_>, tables: &mut BTreeMap<String, Table>) {
    let names: Vec<String> = tables.keys().cloned().collect();
    for (name, table) in tables {
        let Some(Value::Array(depends)) = table.get_mut("depends") else {
            continue;
        };
        depends.retain(|needed| {
            let needed = needed.as_str().unwrap_or_default();
            let is_known = names.iter().any(|other| other == needed);
            if !is_known {
                services.remark(&format!(
                    "`{name}` depends on `{needed}`, which does not start"
                ));
            }
            is_known
        });
    }
}

/// Of two services with one target LAppS serves the one that was started last.
fn keep_last_of_each_target(services: &mut Reader<'_>, tables: &mut BTreeMap<String, Table>) {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let starts = |table: &Table| !table.contains_key("auto_start");
    // Those that only others start come first: they give way to those that start by themselves.
    let (first, last): (Vec<_>, Vec<_>) = tables.iter().partition(|(_, table)| !starts(table));
    for (name, table) in first.into_iter().chain(last) {
        if let Some(target) = table.get("target").and_then(Value::as_str)
            && let Some(before) = owners.insert(target.to_owned(), name.clone())
        {
            services.remark(&format!(
                "`{before}` has the target of `{name}` and does not start"
            ));
        }
    }
    tables.retain(|name, table| {
        let target = table.get("target").and_then(Value::as_str);
        target.is_none_or(|target| owners.get(target) == Some(name))
    });
}

/// Modules with functions that wait.
const BLOCKING: [&str; 4] = ["cws", "mqr", "nap", "pam_auth"];

const REACTIVE: [&str; 6] = [
    "acl",
    "extra_headers",
    "max_inbound_message_size",
    "proto_alias",
    "protocol",
    "request_target",
];
