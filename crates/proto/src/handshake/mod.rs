//! The opening handshake (RFC 6455, 4): reading and building heads, keys and their answers.

mod build;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod head;
mod key;
mod request;
mod response;

pub use build::{
    Acceptance, BuildError, UpgradeRequest, WebSocketVersion, accept_response, refusal,
};
pub(crate) use head::is_token_byte;
pub use head::{Headers, is_token};
pub use key::{ClientKey, accept_key};
pub use request::{Request, RequestError, RequestReader};
pub use response::{Response, ResponseError, ResponseReader};
