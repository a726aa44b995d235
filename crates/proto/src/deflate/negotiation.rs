//! Offers and answers (RFC 7692, 5 and 7.1).

use alloc::format;
use alloc::string::String;

use super::extension::{self, Extension};
use super::parameters::{DeflateAgreement, DeflateDirection, WindowBits};

/// What a server compresses at most, unless told otherwise: a message is compressed in one go, and
/// 1 MiB takes up to 25 ms at level 1, in which its worker serves nobody else.
const COMPRESS_BYTES_MAX: usize = 1024 * 1024;

/// How a server answers offers of permessage-deflate. What the client asks for and this server can
/// do is granted; what it merely allows is decided by these values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeflatePolicy {
    /// The most that the server's own compression uses, if the client does not demand less.
    pub server: DeflateDirection,
    /// What the client's compression may use. Without takeover the client is told so (it must
    /// comply); fewer bits can be demanded only of a client that offers them.
    pub client: DeflateDirection,
    /// See [`DeflateAgreement::level`].
    pub level: u8,
    /// See [`DeflateAgreement::threshold_bytes`].
    pub threshold_bytes: usize,
    /// See [`DeflateAgreement::compress_bytes_max`].
    pub compress_bytes_max: usize,
}

impl Default for DeflatePolicy {
    /// No takeover, so that an idle connection keeps no window; the fastest level; nothing that
    /// takes long.
    fn default() -> Self {
        let direction = DeflateDirection {
            context_takeover: false,
            window_bits: WindowBits::MAX,
        };
        Self {
            server: direction,
            client: direction,
            level: 1,
            threshold_bytes: 64,
            compress_bytes_max: COMPRESS_BYTES_MAX,
        }
    }
}

impl DeflatePolicy {
    /// Answers a request whose `Sec-WebSocket-Extensions` fields are these: with the first offer
    /// that can be granted, and the field of the response that grants it.
    pub(crate) fn answer<'a>(
        &self,
        fields: impl Iterator<Item = &'a str>,
    ) -> Option<(DeflateAgreement, String)> {
        fields
            .filter_map(extension::parse)
            .flatten()
            .filter_map(|extension| Terms::read(&extension, End::Client))
            .map(|offer| self.grant(&offer))
            .next()
    }

    fn grant(&self, offer: &Terms) -> (DeflateAgreement, String) {
        let server_bits = match offer.server_bits {
            Some(demanded) => demanded.min(self.server.window_bits),
            None => self.server.window_bits,
        };
        // RFC 7692, 7.1.2.2: without the client's hint the answer must not have the parameter.
        let client_bits = offer.client_bits.map(|hint| {
            let most = hint.unwrap_or(WindowBits::MAX);
            most.min(self.client.window_bits)
        });
        let agreement = DeflateAgreement {
            server: DeflateDirection {
                context_takeover: self.server.context_takeover && !offer.server_alone,
                window_bits: server_bits,
            },
            client: DeflateDirection {
                context_takeover: self.client.context_takeover && !offer.client_alone,
                window_bits: client_bits.unwrap_or(WindowBits::MAX),
            },
            level: self.level,
            threshold_bytes: self.threshold_bytes,
            compress_bytes_max: self.compress_bytes_max,
        };
        let terms = Terms {
            server_alone: !agreement.server.context_takeover,
            client_alone: !agreement.client.context_takeover,
            server_bits: (offer.server_bits.is_some() || server_bits < WindowBits::MAX)
                .then_some(server_bits),
            client_bits: client_bits.filter(|bits| *bits < WindowBits::MAX).map(Some),
        };
        (agreement, terms.field())
    }
}

/// What a client offers, and how it compresses once the server agrees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeflateOffer {
    /// What the server is asked to keep within.
    pub server: DeflateDirection,
    /// What this client keeps within.
    pub client: DeflateDirection,
    /// See [`DeflateAgreement::level`].
    pub level: u8,
    /// See [`DeflateAgreement::threshold_bytes`].
    pub threshold_bytes: usize,
    /// See [`DeflateAgreement::compress_bytes_max`].
    pub compress_bytes_max: usize,
}

impl Default for DeflateOffer {
    /// What browsers offer: `permessage-deflate; client_max_window_bits`. A client keeps nobody
    /// else waiting, so it compresses whatever its length.
    fn default() -> Self {
        let direction = DeflateDirection {
            context_takeover: true,
            window_bits: WindowBits::MAX,
        };
        Self {
            server: direction,
            client: direction,
            level: 1,
            threshold_bytes: 64,
            compress_bytes_max: usize::MAX,
        }
    }
}

impl DeflateOffer {
    /// The offer with these parameters, as they stand behind the name of the extension in a
    /// request: `server_no_context_takeover; client_max_window_bits=10`. `None`: they are not such.
    pub fn parse(parameters: &str) -> Option<Self> {
        let separator = if parameters.trim().is_empty() {
            ""
        } else {
            ";"
        };
        let field = [NAME, separator, parameters].concat();
        let extensions = extension::parse(&field)?;
        let [extension] = extensions.as_slice() else {
            return None;
        };
        let terms = Terms::read(extension, End::Client)?;
        Some(Self {
            server: DeflateDirection {
                context_takeover: !terms.server_alone,
                window_bits: terms.server_bits.unwrap_or(WindowBits::MAX),
            },
            client: DeflateDirection {
                context_takeover: !terms.client_alone,
                window_bits: terms.client_bits.flatten().unwrap_or(WindowBits::MAX),
            },
            ..Self::default()
        })
    }

    /// The field of the request.
    pub fn field(&self) -> String {
        let reduced = |bits: WindowBits| (bits < WindowBits::MAX).then_some(bits);
        Terms {
            server_alone: !self.server.context_takeover,
            client_alone: !self.client.context_takeover,
            server_bits: reduced(self.server.window_bits),
            client_bits: Some(reduced(self.client.window_bits)),
        }
        .field()
    }

    /// Checks the answer to this offer (RFC 7692, 7.1). `Ok(None)`: the server declined.
    pub(crate) fn check<'a>(
        &self,
        fields: impl Iterator<Item = &'a str>,
    ) -> Result<Option<DeflateAgreement>, AnswerInvalid> {
        let mut granted = None;
        for field in fields {
            for extension in extension::parse(field).ok_or(AnswerInvalid)? {
                let terms = Terms::read(&extension, End::Server).ok_or(AnswerInvalid)?;
                if granted.replace(self.agree(&terms)?).is_some() {
                    // Twice the same extension, which claims the same bit.
                    return Err(AnswerInvalid);
                }
            }
        }
        Ok(granted)
    }

    fn agree(&self, terms: &Terms) -> Result<DeflateAgreement, AnswerInvalid> {
        let asked = &self.server;
        let server_bits = terms.server_bits.unwrap_or(WindowBits::MAX);
        if (!asked.context_takeover && !terms.server_alone) || server_bits > asked.window_bits {
            // RFC 7692, 7.1.1.1 and 7.1.2.1: what was demanded is granted or the offer declined.
            return Err(AnswerInvalid);
        }
        let client_bits = terms.client_bits.flatten().unwrap_or(WindowBits::MAX);
        Ok(DeflateAgreement {
            server: DeflateDirection {
                context_takeover: !terms.server_alone,
                window_bits: server_bits,
            },
            client: DeflateDirection {
                context_takeover: self.client.context_takeover && !terms.client_alone,
                window_bits: client_bits.min(self.client.window_bits),
            },
            level: self.level,
            threshold_bytes: self.threshold_bytes,
            compress_bytes_max: self.compress_bytes_max,
        })
    }
}

/// The answer to an offer is malformed, or grants what was not offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AnswerInvalid;

/// The parameters of one offer or answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Terms {
    /// `server_no_context_takeover`.
    server_alone: bool,
    /// `client_no_context_takeover`.
    client_alone: bool,
    /// `server_max_window_bits`.
    server_bits: Option<WindowBits>,
    /// `client_max_window_bits`, which an offer may have without a value.
    client_bits: Option<Option<WindowBits>>,
}

/// Who says something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Client,
    Server,
}

impl Terms {
    /// Reads an extension said by `end`. `None`: it is another extension, or it has an unknown
    /// parameter, one twice, or an invalid value: then an offer must be declined, and a connection
    /// with such an answer must fail (RFC 7692, 7).
    fn read(extension: &Extension<'_>, end: End) -> Option<Self> {
        if extension.name != NAME {
            return None;
        }
        let mut terms = Self::default();
        for parameter in &extension.parameters {
            let value = parameter.value.as_deref();
            let is_repeated = match (parameter.name, value) {
                (SERVER_ALONE, None) => core::mem::replace(&mut terms.server_alone, true),
                (CLIENT_ALONE, None) => core::mem::replace(&mut terms.client_alone, true),
                (SERVER_BITS, Some(value)) => {
                    terms.server_bits.replace(window_bits(value)?).is_some()
                }
                (CLIENT_BITS, Some(value)) => terms
                    .client_bits
                    .replace(Some(window_bits(value)?))
                    .is_some(),
                (CLIENT_BITS, None) if end == End::Client => {
                    terms.client_bits.replace(None).is_some()
                }
                _ => return None,
            };
            if is_repeated {
                return None;
            }
        }
        Some(terms)
    }

    fn field(&self) -> String {
        let mut field = String::from(NAME);
        let mut add = |parameter: &str| {
            field.push_str("; ");
            field.push_str(parameter);
        };
        if self.server_alone {
            add(SERVER_ALONE);
        }
        if self.client_alone {
            add(CLIENT_ALONE);
        }
        if let Some(bits) = self.server_bits {
            add(&format!("{SERVER_BITS}={bits}"));
        }
        match self.client_bits {
            Some(Some(bits)) => add(&format!("{CLIENT_BITS}={bits}")),
            Some(None) => add(CLIENT_BITS),
            None => {}
        }
        field
    }
}

/// A decimal number from 8 to 15 without leading zeros (RFC 7692, 7.1.2.1).
fn window_bits(value: &str) -> Option<WindowBits> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit()) && !value.starts_with('0');
    let bits = value.parse().ok().filter(|_| is_plain)?;
    WindowBits::new(bits)
}

const NAME: &str = "permessage-deflate";
const SERVER_ALONE: &str = "server_no_context_takeover";
const CLIENT_ALONE: &str = "client_no_context_takeover";
const SERVER_BITS: &str = "server_max_window_bits";
const CLIENT_BITS: &str = "client_max_window_bits";
