//! `[server.acl]` and `[services.NAME.acl]`.

use super::ConfigError;
use super::file::AclTable;
use super::sentence::Text;
use crate::acl::{Acl, AclPolicy};

pub(super) fn acl(text: &Text<'_>, table: &AclTable) -> Result<Acl, ConfigError> {
    let policy = match &table.policy {
        None => AclPolicy::default(),
        Some(name) => match name.get_ref().as_str() {
            "allow" => AclPolicy::Allow,
            "deny" => AclPolicy::Deny,
            other => {
                let sentence = format!("acl.policy = \"{other}\" must be \"allow\" or \"deny\"");
                return Err(text.error(name.span(), sentence));
            }
        },
    };
    let ranges = table.exclude.iter().map(|range| {
        let parsed = range.get_ref().parse();
        parsed
            .map_err(|problem: String| text.error(range.span(), format!("acl.exclude: {problem}")))
    });
    Ok(Acl {
        policy,
        exclude: ranges.collect::<Result<_, _>>()?,
    })
}
