//! `[services.NAME]` and `--app NAME=DIR`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moonwire_lua::{Module, Protocol, Sandbox};
use moonwire_proto::is_token;
use toml::Spanned;

use super::acl::acl;
use super::deflate::deflate;
use super::depends::start_order;
use super::file::ServiceTable;
use super::limits::{Bounded, DAY_MS, GIB};
use super::sentence::Text;
use super::{
    Builtin, ConfigError, Execution, HEALTH, Limits, METRICS, OnBrokenService, Overrides, Service,
    StandaloneService,
};
use crate::acl::Acl;
use crate::origin::AllowedOrigins;
use crate::shipped::ShippedApps;

/// Reads the services of one configuration.
pub(super) struct Services<'a> {
    /// Where they are written.
    pub(super) text: &'a Text<'a>,
    /// What the command line says.
    pub(super) overrides: &'a Overrides,
    /// The default number of instances.
    pub(super) workers: usize,
    /// The defaults of a service's own limits.
    pub(super) limits: &'a Limits,
    /// Whether a service without its file is an error here, or only cannot be started.
    pub(super) on_broken_service: OnBrokenService,
    /// Whose pages may connect with cookies to a service that does not say so itself.
    pub(super) allowed_origins: AllowedOrigins,
    /// The shipped apps, unpacked as soon as a service needs them.
    pub(super) shipped: Option<ShippedApps>,
}

impl Services<'_> {
    /// Those of the file in the order of their names, then those of the command line alone.
    pub(super) fn read(
        &mut self,
        tables: &BTreeMap<String, Spanned<ServiceTable>>,
    ) -> Result<(Vec<Service>, Vec<StandaloneService>), ConfigError> {
        let (mut services, mut standalone) = (Vec::new(), Vec::new());
        for (name, table) in tables {
            match table.get_ref().standalone {
                true => standalone.push(self.standalone(name, table)?),
                false => services.push(self.service(name, table)?),
            }
        }
        let order = start_order(self.text, tables)?;
        let rank = |name: &str| order.iter().position(|other| other == name);
        services.retain(|service| rank(&service.name).is_some());
        services.sort_by_key(|service| rank(&service.name));
        standalone.retain(|service| rank(&service.name).is_some());
        standalone.sort_by_key(|service| rank(&service.name));
        mark_late(tables, &mut standalone);
        for (name, folder) in &self.overrides.apps {
            if !tables.contains_key(name) {
                services.push(self.app(name, folder)?);
            }
        }
        if services.is_empty() && standalone.is_empty() {
            let sentence = match tables.is_empty() {
                true => "there is no service; add a table such as [services.echo]",
                false => "no service starts, because each has auto_start = false",
            };
            return Err(self.text.error(0..0, sentence));
        }
        check_targets(self.text, tables, &services)?;
        Ok((services, standalone))
    }

    fn standalone(
        &mut self,
        name: &str,
        table: &Spanned<ServiceTable>,
    ) -> Result<StandaloneService, ConfigError> {
        let text = self.text;
        let span = table.span();
        let table = table.get_ref();
        check_name(name).map_err(|sentence| text.error(span.clone(), sentence))?;
        if let Some(key) = reactive_key(table) {
            let sentence = format!(
                "[services.{name}] is standalone and serves no connections, so it has no `{key}`"
            );
            return Err(text.error(span, sentence));
        }
        let number = Bounded { text };
        Ok(StandaloneService {
            name: name.to_owned(),
            folder: self.chosen_folder(name, table, span)?,
            instances: number.or("instances", &table.instances, 1, 1..=INSTANCES_MAX)?,
            memory_bytes_max: memory(text, table)?,
            callback_timeout: callback_timeout(text, table, START_TIMEOUT_MS)?,
            preload: preload(text, table)?,
            sandbox: sandbox(text, table)?,
            config: json(&toml::Value::Table(table.config.clone())),
            is_late: false,
        })
    }

    fn service(
        &mut self,
        name: &str,
        table: &Spanned<ServiceTable>,
    ) -> Result<Service, ConfigError> {
        let text = self.text;
        let number = Bounded { text };
        let span = table.span();
        let table = table.get_ref();
        check_name(name).map_err(|sentence| text.error(span.clone(), sentence))?;
        let Some(target) = &table.target else {
            let sentence = format!("[services.{name}] has no `target`; add target = \"/{name}\"");
            return Err(text.error(span, sentence));
        };
        check_target(target.get_ref()).map_err(|sentence| text.error(target.span(), sentence))?;
        let builtin = self.builtin(name, table, &span)?;
        let folder = match builtin {
            Some(_) => PathBuf::new(),
            None => self.chosen_folder(name, table, span)?,
        };
        let (workers, bytes) = (self.workers, self.limits.message_bytes_max);
        Ok(Service {
            name: name.to_owned(),
            target: target.get_ref().clone(),
            builtin,
            folder,
            instances: number.or(
                "instances",
                &table.instances,
                workers.max(1),
                1..=INSTANCES_MAX,
            )?,
            message_bytes_max: number.or(
                "message_bytes_max",
                &table.message_bytes_max,
                bytes,
                1..=GIB,
            )?,
            memory_bytes_max: memory(text, table)?,
            callback_timeout: callback_timeout(text, table, CALLBACK_TIMEOUT_MS)?,
            execution: execution(text, table)?,
            protocol: protocol(text, table)?,
            preload: preload(text, table)?,
            sandbox: sandbox(text, table)?,
            has_handshake_hook: table.handshake_hook.unwrap_or(true),
            subprotocol: subprotocol(text, table)?,
            is_subprotocol_forced: table.subprotocol_forced,
            deflate: deflate(text, table.deflate.as_ref())?,
            allowed_origins: match &table.allowed_origins {
                Some(origins) => allowed_origins(text, origins)?,
                None => self.allowed_origins.clone(),
            },
            acl: table
                .acl
                .as_ref()
                .map_or_else(|| Ok(Acl::default()), |table| acl(text, table))?,
            extra_headers: extra_headers(text, table)?,
            config: json(&toml::Value::Table(table.config.clone())),
        })
    }

    /// A service that only the command line names.
    fn app(&self, name: &str, folder: &Path) -> Result<Service, ConfigError> {
        let target = format!("/{name}");
        check_name(name)
            .and_then(|()| check_target(&target))
            .map_err(|sentence| ConfigError::new(format!("--app: {sentence}")))?;
        Ok(Service {
            name: name.to_owned(),
            target,
            builtin: None,
            folder: app_folder(name, folder)?,
            instances: self.workers,
            message_bytes_max: self.limits.message_bytes_max,
            memory_bytes_max: None,
            callback_timeout: Some(Duration::from_millis(CALLBACK_TIMEOUT_MS)),
            execution: Execution::Inline,
            protocol: Protocol::Raw,
            preload: Vec::new(),
            sandbox: Sandbox::Trusted,
            has_handshake_hook: true,
            subprotocol: None,
            is_subprotocol_forced: false,
            deflate: None,
            allowed_origins: self.allowed_origins.clone(),
            acl: Acl::default(),
            extra_headers: Vec::new(),
            config: serde_json::Value::Object(serde_json::Map::new()),
        })
    }

    /// What answers instead of Lua, if anything: then there is nothing for Lua in the table.
    fn builtin(
        &self,
        name: &str,
        table: &ServiceTable,
        span: &Range<usize>,
    ) -> Result<Option<Builtin>, ConfigError> {
        let Some(builtin) = &table.builtin else {
            return Ok(None);
        };
        let answer = match builtin.get_ref().as_str() {
            "echo" => Builtin::Echo,
            other => {
                let sentence = format!("builtin = \"{other}\" must be \"echo\"");
                return Err(self.text.error(builtin.span(), sentence));
            }
        };
        if let Some(key) = lua_key(table) {
            let sentence = format!("[services.{name}] is built in, so it has no `{key}`");
            return Err(self.text.error(span.clone(), sentence));
        }
        if self.overrides.apps.iter().any(|(app, _)| app == name) {
            let sentence = format!("--app: `{name}` is built in, so it has no folder");
            return Err(ConfigError::new(sentence));
        }
        Ok(Some(answer))
    }

    /// The folder of a service: what the command line says, or the file.
    fn chosen_folder(
        &mut self,
        name: &str,
        table: &ServiceTable,
        span: Range<usize>,
    ) -> Result<PathBuf, ConfigError> {
        let mut apps = self.overrides.apps.iter().rev();
        match apps.find(|(app, _)| app == name) {
            Some((_, folder)) => app_folder(name, folder),
            None => self.folder(name, table, span),
        }
    }

    /// The folder of a service: as written, or of a shipped one, or apps/NAME beside the file.
    fn folder(
        &mut self,
        name: &str,
        table: &ServiceTable,
        span: Range<usize>,
    ) -> Result<PathBuf, ConfigError> {
        let (folder, span) = match &table.folder {
            Some(folder) => (self.text.relative(folder.get_ref()), folder.span()),
            None if ShippedApps::has(name) => (self.shipped_folder(name)?, span),
            None => (self.text.relative(&format!("apps/{name}")), span),
        };
        if self.on_broken_service == OnBrokenService::Stop {
            check_folder(name, &folder).map_err(|sentence| self.text.error(span, sentence))?;
        }
        Ok(folder)
    }

    fn shipped_folder(&mut self, name: &str) -> Result<PathBuf, ConfigError> {
        let apps = match self.shipped.take() {
            Some(apps) => apps,
            None => ShippedApps::unpack().map_err(|error| {
                let place = std::env::temp_dir();
                let place = place.display();
                ConfigError::new(format!(
                    "the shipped services cannot be written to {place}: {error}"
                ))
            })?,
        };
        Ok(self.shipped.insert(apps).folder(name))
    }
}

/// Finds the standalone services that depend, by whatever way, on one with connections. They are in
/// the order in which they start.
fn mark_late(
    tables: &BTreeMap<String, Spanned<ServiceTable>>,
    standalone: &mut [StandaloneService],
) {
    let mut late: Vec<String> = Vec::new();
    for service in standalone {
        let table = tables.get(&service.name).map(Spanned::get_ref);
        let mut depends = table.into_iter().flat_map(|table| &table.depends);
        service.is_late = depends.any(|needed| {
            let needed = needed.get_ref();
            let is_reactive = tables
                .get(needed)
                .is_some_and(|table| !table.get_ref().standalone);
            is_reactive || late.contains(needed)
        });
        if service.is_late {
            late.push(service.name.clone());
        }
    }
}

fn app_folder(name: &str, folder: &Path) -> Result<PathBuf, ConfigError> {
    check_folder(name, folder)
        .map_err(|sentence| ConfigError::new(format!("--app {name}: {sentence}")))?;
    Ok(folder.to_owned())
}

fn check_folder(name: &str, folder: &Path) -> Result<(), String> {
    let file = folder.join(format!("{name}.lua"));
    if file.is_file() {
        return Ok(());
    }
    Err(format!(
        "the service `{name}` has no file {}; its folder must hold {name}.lua",
        file.display()
    ))
}

fn check_name(name: &str) -> Result<(), String> {
    let mut bytes = name.bytes();
    let first = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Ok(());
    }
    Err(format!(
        "the service name `{name}` must be letters, digits, `_` and `-`, a letter first"
    ))
}

fn check_target(target: &str) -> Result<(), String> {
    let visible = target
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
    if !target.starts_with('/') || !visible {
        return Err(format!(
            "the target `{target}` must be a path that begins with `/`, without `?`, `#` and spaces"
        ));
    }
    if target == HEALTH || target == METRICS {
        return Err(format!(
            "the target `{target}` is answered by the server itself; choose another"
        ));
    }
    Ok(())
}

fn check_targets(
    text: &Text<'_>,
    tables: &BTreeMap<String, Spanned<ServiceTable>>,
    services: &[Service],
) -> Result<(), ConfigError> {
    let mut owners = BTreeMap::new();
    for service in services {
        let Some(owner) = owners.insert(&service.target, &service.name) else {
            continue;
        };
        let sentence = format!(
            "the target `{}` of `{}` is already that of `{owner}`; each service needs its own",
            service.target, service.name
        );
        let target = tables
            .get(&service.name)
            .and_then(|table| table.get_ref().target.as_ref());
        return Err(target.map_or_else(
            || ConfigError::new(&sentence),
            |target| text.error(target.span(), &sentence),
        ));
    }
    Ok(())
}

/// A key of this table that only a service with connections can have.
fn reactive_key(table: &ServiceTable) -> Option<&'static str> {
    let keys = [
        ("target", table.target.is_some()),
        ("builtin", table.builtin.is_some()),
        ("message_bytes_max", table.message_bytes_max.is_some()),
        ("execution", table.execution.is_some()),
        ("protocol", table.protocol.is_some()),
        ("subprotocol", table.subprotocol.is_some()),
        ("subprotocol_forced", table.subprotocol_forced),
        ("deflate", table.deflate.is_some()),
        ("allowed_origins", table.allowed_origins.is_some()),
        ("acl", table.acl.is_some()),
        ("handshake_hook", table.handshake_hook.is_some()),
        ("extra_headers", !table.extra_headers.is_empty()),
    ];
    let found = keys.into_iter().find(|(_, is_there)| *is_there);
    found.map(|(key, _)| key)
}

/// A key of this table that only a service in Lua can have.
fn lua_key(table: &ServiceTable) -> Option<&'static str> {
    let keys = [
        ("folder", table.folder.is_some()),
        ("instances", table.instances.is_some()),
        ("memory_bytes_max", table.memory_bytes_max.is_some()),
        ("callback_timeout_ms", table.callback_timeout_ms.is_some()),
        ("execution", table.execution.is_some()),
        ("protocol", table.protocol.is_some()),
        ("preload", !table.preload.is_empty()),
        ("sandbox", table.sandbox.is_some()),
        ("handshake_hook", table.handshake_hook.is_some()),
        ("config", !table.config.is_empty()),
    ];
    let found = keys.into_iter().find(|(_, is_there)| *is_there);
    found.map(|(key, _)| key)
}

fn memory(text: &Text<'_>, table: &ServiceTable) -> Result<Option<usize>, ConfigError> {
    let memory = &table.memory_bytes_max;
    let bounds = MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX;
    let is_restricted = sandbox(text, table)? == Sandbox::Restricted;
    let default = if is_restricted {
        RESTRICTED_BYTES_MAX
    } else {
        MEMORY_BYTES_MAX
    };
    let bytes = Bounded { text }.or("memory_bytes_max", memory, default, bounds)?;
    Ok((memory.is_some() || is_restricted).then_some(bytes))
}

fn callback_timeout(
    text: &Text<'_>,
    table: &ServiceTable,
    default_ms: u64,
) -> Result<Option<Duration>, ConfigError> {
    let (key, bounds) = ("callback_timeout_ms", 0..=DAY_MS);
    let timeout_ms = Bounded { text }.or(key, &table.callback_timeout_ms, default_ms, bounds)?;
    Ok((timeout_ms > 0).then_some(Duration::from_millis(timeout_ms)))
}

fn execution(text: &Text<'_>, table: &ServiceTable) -> Result<Execution, ConfigError> {
    let Some(name) = &table.execution else {
        return Ok(Execution::Inline);
    };
    match name.get_ref().as_str() {
        "inline" => Ok(Execution::Inline),
        "threaded" => Ok(Execution::Threaded),
        other => {
            let sentence = format!("the execution `{other}` must be \"inline\" or \"threaded\"");
            Err(text.error(name.span(), sentence))
        }
    }
}

/// `allowed_origins`, of the server or of a service.
pub(super) fn allowed_origins(
    text: &Text<'_>,
    origins: &[Spanned<String>],
) -> Result<AllowedOrigins, ConfigError> {
    let mut allowed = AllowedOrigins::default();
    for origin in origins {
        let refused = |problem| text.error(origin.span(), format!("allowed_origins: {problem}"));
        allowed.allow(origin.get_ref()).map_err(refused)?;
    }
    Ok(allowed)
}

fn protocol(text: &Text<'_>, table: &ServiceTable) -> Result<Protocol, ConfigError> {
    let Some(name) = &table.protocol else {
        return Ok(Protocol::Raw);
    };
    match name.get_ref().as_str() {
        "raw" => Ok(Protocol::Raw),
        "lapps" => Ok(Protocol::Lapps),
        other => {
            let sentence = format!("the protocol `{other}` must be \"raw\" or \"lapps\"");
            Err(text.error(name.span(), sentence))
        }
    }
}

fn sandbox(text: &Text<'_>, table: &ServiceTable) -> Result<Sandbox, ConfigError> {
    let Some(name) = &table.sandbox else {
        return Ok(Sandbox::Trusted);
    };
    match name.get_ref().as_str() {
        "trusted" => Ok(Sandbox::Trusted),
        "restricted" => Ok(Sandbox::Restricted),
        other => {
            let sentence = format!("the sandbox `{other}` must be \"trusted\" or \"restricted\"");
            Err(text.error(name.span(), sentence))
        }
    }
}

fn preload(text: &Text<'_>, table: &ServiceTable) -> Result<Vec<Module>, ConfigError> {
    let mut modules = Vec::new();
    for name in &table.preload {
        let Some(module) = Module::named(name.get_ref()) else {
            let known = Module::ALL.map(Module::name).join(", ");
            let sentence = format!("there is no module `{}` but {known}", name.get_ref());
            return Err(text.error(name.span(), sentence));
        };
        if !modules.contains(&module) {
            modules.push(module);
        }
    }
    Ok(modules)
}

fn subprotocol(text: &Text<'_>, table: &ServiceTable) -> Result<Option<String>, ConfigError> {
    let Some(name) = &table.subprotocol else {
        return Ok(None);
    };
    if is_token(name.get_ref()) {
        return Ok(Some(name.get_ref().clone()));
    }
    let sentence = format!(
        "the subprotocol `{}` must be one word, as HTTP has it",
        name.get_ref()
    );
    Err(text.error(name.span(), sentence))
}

fn extra_headers(
    text: &Text<'_>,
    table: &ServiceTable,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut headers = Vec::new();
    for (name, value) in &table.extra_headers {
        let content = value.get_ref();
        let lower = name.to_ascii_lowercase();
        let ours = [
            "connection",
            "content-length",
            "host",
            "transfer-encoding",
            "upgrade",
        ];
        let sentence = if !is_token(name) {
            format!("the header name `{name}` must be one word, as HTTP has it")
        } else if ours.contains(&lower.as_str()) || lower.starts_with("sec-websocket-") {
            format!("the header `{name}` belongs to the handshake and cannot be added")
        } else if content.chars().any(|c| c.is_control() && c != '\t') {
            format!("the header `{name}` has a control character in its value")
        } else {
            headers.push((name.clone(), content.clone()));
            continue;
        };
        return Err(text.error(value.span(), sentence));
    }
    Ok(headers)
}

/// The free table of a service as the Lua room takes it. Dates become text, and the numbers that
/// JSON does not have become null.
fn json(value: &toml::Value) -> serde_json::Value {
    match value {
        toml::Value::String(text) => text.clone().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(truth) => (*truth).into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(array) => array.iter().map(json).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(key, value)| (key.clone(), json(value)))
            .collect(),
    }
}

/// A virtual machine with its modules takes some hundred KiB before it does anything.
const MEMORY_BYTES_MIN: usize = 1024 * 1024;

/// Who shares a worker with a service waits for so long at most.
const CALLBACK_TIMEOUT_MS: u64 = 1000;

/// Nobody but the start of the server waits for a standalone service.
const START_TIMEOUT_MS: u64 = 10_000;

/// Half of what a pointer of this kernel reaches: no limit at all.
const MEMORY_BYTES_MAX: usize = 1 << 46;

/// What a restricted service may hold that has no bound of its own: who does not trust its code
/// does not want it to have all memory either.
const RESTRICTED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// More virtual machines than this in one process are a slip of the keyboard.
const INSTANCES_MAX: usize = 4096;
