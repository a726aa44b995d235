//! The report as one HTML page that needs nothing but itself.

use crate::run::Run;

/// The page.
pub fn html(run: &Run) -> String {
    format!(
        "<!doctype html><pre>{}</pre>",
        crate::format::escaped(&crate::markdown::markdown(run))
    )
}
