//! There is nothing here: see `Cargo.toml`.
