//! Which part of the server a request is for.

use std::collections::HashMap;

use crate::config::{HEALTH, METRICS, Service};

/// The paths of the services. A path matches exactly, and the query is not looked at.
#[derive(Debug)]
pub(crate) struct Router {
    /// Path to index of the service.
    targets: HashMap<Box<str>, u16>,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Route {
    /// To the service with this index.
    Service(u16),
    /// To the answer that the server is well.
    Health,
    /// To the counters.
    Metrics,
    /// Nowhere.
    NotFound,
}

impl Router {
    /// The routes of `services`, whose targets are all different.
    pub(crate) fn new(services: &[Service]) -> Self {
        let targets = services
            .iter()
            .map(|service| service.target.as_str().into());
        Self {
            targets: targets.zip(0..).collect(),
        }
    }

    /// Where a request for `path`, without its query, goes.
    pub(crate) fn route(&self, path: &str) -> Route {
        match (self.targets.get(path), path) {
            (Some(service), _) => Route::Service(*service),
            (None, HEALTH) => Route::Health,
            (None, METRICS) => Route::Metrics,
            (None, _) => Route::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    #[test]
    fn paths_match_exactly() {
        let config = Config::shipped(&Overrides::default()).unwrap();
        let router = Router::new(&config.services);
        let echo = config
            .services
            .iter()
            .position(|service| service.name == "echo")
            .unwrap();
        assert_eq!(
            router.route("/echo"),
            Route::Service(u16::try_from(echo).unwrap())
        );
        for path in ["/echo/", "/Echo", "/ech", "/", ""] {
            assert_eq!(router.route(path), Route::NotFound, "{path}");
        }
        assert_eq!(router.route("/health"), Route::Health);
        assert_eq!(router.route("/metrics"), Route::Metrics);
    }
}
