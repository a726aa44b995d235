//! Which services start, and in which order: each after those that it depends on.

use std::collections::BTreeMap;

use toml::Spanned;

use super::ConfigError;
use super::file::ServiceTable;
use super::sentence::Text;

/// The names of the services that start, each behind all that it depends on. A service that does
/// not start by itself starts if another depends on it; one that depends on itself does not.
pub(super) fn start_order(
    text: &Text<'_>,
    tables: &BTreeMap<String, Spanned<ServiceTable>>,
) -> Result<Vec<String>, ConfigError> {
    let mut walk = Walk {
        text,
        tables,
        path: Vec::new(),
        order: Vec::new(),
    };
    for (name, table) in tables {
        if table.get_ref().auto_start {
            walk.visit(name)?;
        }
    }
    Ok(walk.order.into_iter().map(str::to_owned).collect())
}

struct Walk<'a> {
    text: &'a Text<'a>,
    tables: &'a BTreeMap<String, Spanned<ServiceTable>>,
    /// How we came here; each depends on the next.
    path: Vec<&'a str>,
    order: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    /// Puts a service and what it depends on into the order. The recursion is as deep as there are
    /// services.
    fn visit(&mut self, name: &'a str) -> Result<(), ConfigError> {
        let Some(table) = self.tables.get(name) else {
            return Ok(());
        };
        if self.order.contains(&name) {
            return Ok(());
        }
        self.path.push(name);
        for needed in &table.get_ref().depends {
            let target = needed.get_ref().as_str();
            if target == name {
                continue;
            }
            if let Some(start) = self.path.iter().position(|other| *other == target) {
                let circle = self.path[start..].join(" -> ");
                let sentence = format!(
                    "services depend on each other in a circle: {circle} -> {target}; take one \
                     `depends` out"
                );
                return Err(self.text.error(needed.span(), sentence));
            }
            if !self.tables.contains_key(target) {
                let sentence = format!("`{name}` depends on `{target}`, which is no service here");
                return Err(self.text.error(needed.span(), sentence));
            }
            self.visit(target)?;
        }
        self.path.pop();
        self.order.push(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::File;
    use super::*;

    fn order(toml: &str) -> Result<Vec<String>, String> {
        let file: File = toml::from_str(toml).unwrap();
        let text = Text {
            file: None,
            text: toml,
        };
        start_order(&text, &file.services).map_err(|error| error.to_string())
    }

    #[test]
    fn each_comes_behind_all_that_it_depends_on() {
        let toml = "[services.a]\ndepends = ['c', 'b']\n[services.b]\ndepends = ['c']\n\
                    [services.c]\n[services.d]\ndepends = ['d', 'a']\n";
        assert_eq!(order(toml).unwrap(), ["c", "b", "a", "d"]);
    }

    #[test]
    fn what_does_not_start_by_itself_starts_for_another() {
        let toml = "[services.a]\ndepends = ['b']\n[services.b]\nauto_start = false\n\
                    depends = ['c']\n[services.c]\nauto_start = false\n\
                    [services.d]\nauto_start = false\ndepends = ['missing']\n";
        assert_eq!(order(toml).unwrap(), ["c", "b", "a"]);
    }

    #[test]
    fn circles_and_unknown_names_are_named() {
        let circle = "[services.a]\ndepends = ['b']\n[services.b]\ndepends = ['c']\n\
                      [services.c]\ndepends = ['b']\n";
        let sentence = order(circle).unwrap_err();
        assert!(sentence.contains("in a circle: b -> c -> b"), "{sentence}");
        let sentence = order("[services.a]\ndepends = ['x']\n").unwrap_err();
        assert!(sentence.contains("`a` depends on `x`"), "{sentence}");
    }
}
