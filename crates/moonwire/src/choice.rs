//! Names of a few, on the command line: the help lists them, and a typing error is corrected.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use moonwire_load::{DriverChoice, TlsRecords};

pub(crate) fn driver() -> impl TypedValueParser<Value = DriverChoice> {
    PossibleValuesParser::new(DriverChoice::NAMES).try_map(|name| name.parse::<DriverChoice>())
}

pub(crate) fn tls_records() -> impl TypedValueParser<Value = TlsRecords> {
    PossibleValuesParser::new(TlsRecords::NAMES).try_map(|name| name.parse::<TlsRecords>())
}
