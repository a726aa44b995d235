//! All knobs of a scenario, once: keys of its file and flags of the command line.

/// A knob.
#[derive(Debug, Clone, Copy)]
pub struct KnobKind {
    /// Its key; as a flag with `-` in the place of `_`.
    pub name: &'static str,
    /// What stands for its value.
    pub value: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Whether it can have several values.
    pub is_list: bool,
    /// The variable of the environment that sets it where no flag does.
    pub variable: Option<&'static str>,
    /// What it is where nothing sets it, if that is one value.
    pub default: Option<&'static str>,
}

impl KnobKind {
    const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }
}

/// The names that a file may have.
pub(super) fn names() -> Vec<&'static str> {
    KNOBS.iter().map(|knob| knob.name).collect()
}

pub(super) fn is_list(name: &str) -> bool {
    let knob = KNOBS.iter().find(|knob| knob.name == name);
    knob.is_some_and(|knob| knob.is_list)
}

pub(super) fn help(name: &str) -> &'static str {
    let knob = KNOBS.iter().find(|knob| knob.name == name);
    knob.map_or("", |knob| knob.help)
}

const fn one(name: &'static str, value: &'static str, help: &'static str) -> KnobKind {
    KnobKind {
        name,
        value,
        help,
        is_list: false,
        variable: None,
        default: None,
    }
}

/// A number of processors.
const fn variable(name: &'static str, variable: &'static str, help: &'static str) -> KnobKind {
    KnobKind {
        variable: Some(variable),
        ..one(name, "PROCESSORS", help)
    }
}

const fn list(name: &'static str, value: &'static str, help: &'static str) -> KnobKind {
    KnobKind {
        name,
        value,
        help,
        is_list: true,
        variable: None,
        default: None,
    }
}

/// In the order of the help.
pub const KNOBS: &[KnobKind] = &[
    one("description", "TEXT", "What the scenario is, in a sentence"),
    list(
        "contestants",
        "LIST",
        "Who takes part, ID or ID/VARIANT (`moonwire lab list` has them)",
    ),
    one(
        "backend",
        "NAME",
        "The server behind proxies and of the control `none`",
    )
    .or("moonwire"),
    one("backends", "N", "How many of it, each a process of its own").or("1"),
    one("backend_workers", "N", "Workers of each backend").or("1"),
    one("workers", "N", "Workers of each contestant").or("1"),
    one("tls", "on|off|both", "Whether clients come over TLS").or("off"),
    list("connections", "LIST", "Connections of a cell"),
    list(
        "publishers",
        "LIST",
        "With payload broadcast: connections that publish what all of them hear",
    )
    .or("1"),
    list(
        "silent",
        "LIST",
        "With payload broadcast: connections that subscribe and do not read",
    ),
    list(
        "cross_check",
        "LIST",
        "Generators of others that send the same load to the same processes after ours, such as k6",
    ),
    one("rounds", "N", "How often each cell is measured").or("5"),
    one(
        "warm_up",
        "DURATION",
        "A load before the measured one, against the same processes, that does not count",
    ),
    one(
        "ceiling",
        "DURATION",
        "How long each load is tried against a server that only answers; 0s leaves it out",
    )
    .or("2s"),
    variable(
        "server_cpu_limit",
        "SERVER_CPU_LIMIT",
        "Processors that the servers of a cell may use together, such as 1.5; 0 is no limit",
    ),
    variable("proxy_cpu_limit", "PROXY_CPU_LIMIT", "The same for a proxy"),
    variable(
        "client_cpu_limit",
        "CLIENT_CPU_LIMIT",
        "The same for the generator's threads: a cell in which they run into it is INVALID",
    ),
    one(
        "kill_after",
        "DURATION",
        "Kill the contestant so long after the first message was due, or after the connections \
         were up, and start it again",
    ),
    one("down_for", "DURATION", "How long it stays down").or("1s"),
    one(
        "over",
        "rate|connections",
        "Look for the most that keeps the thresholds, of this",
    ),
    one(
        "from",
        "N",
        "The first that is tried; 1,000 a second or 100 connections if nothing is said",
    ),
    one("to", "N", "No more is tried"),
    one(
        "precision",
        "SHARE",
        "The gap left between what passes and what fails",
    )
    .or("2%"),
    one(
        "confirm",
        "DURATION",
        "How long the highest that passed is tried in the end",
    )
    .or("10s"),
    one("primary", "METRIC", "The metric that decides who is ahead"),
    list("columns", "METRICS", "The metrics that the tables have"),
    one(
        "control",
        "NAME",
        "The contestant that the others are compared with beside the best",
    ),
    one(
        "resolve",
        "SHARE",
        "The difference that the battle should be able to tell, such as 3%",
    )
    .or("3%"),
    list(
        "thresholds",
        "EXPRS",
        "Conditions that each cell has to meet, such as 'p(99.9)<5ms'",
    ),
    one(
        "link_delay",
        "DURATION",
        "Delay of each direction of the link between clients and contestants; a bare number is in \
         ms",
    )
    .or("0"),
    one(
        "link_jitter",
        "DURATION",
        "Each packet takes up to this much longer",
    )
    .or("0"),
    one(
        "link_loss",
        "SHARE",
        "Share of packets that the link drops at random, such as 1%",
    )
    .or("0%"),
    one(
        "link_rate",
        "BITS_PER_S",
        "Bottleneck of each direction, such as 100m",
    ),
    one(
        "link_queue",
        "BYTES",
        "Bytes that each direction of the link holds at most",
    )
    .or("64MiB"),
    one(
        "agent",
        "ADDR:PORT",
        "Where `moonwire lab agent` is, which starts the contestants on its host; \
         MOONWIRE_AGENT_TOKEN has its token",
    ),
    one(
        "agent_token_file",
        "FILE",
        "The file with the agent's token, in the place of MOONWIRE_AGENT_TOKEN",
    ),
    one(
        "one_way_bound",
        "DURATION",
        "How far one-way latencies may be off where the clocks of two hosts are compared; \
         beyond it there are none",
    )
    .or("500us"),
    one("seed", "N", "Seed of the order, the payloads and the link"),
    one(
        "payload",
        "echo|amplify|broadcast",
        "What is sent: bytes to be echoed, the JSON of uwebsocket-benchmark's servers, or bytes \
         that all subscribers get",
    )
    .or("echo"),
    list(
        "message_size",
        "BYTES",
        "Bytes of a message; 64 if nothing is said, 1KiB with payload amplify",
    ),
    one("binary", "true|false", "Binary messages instead of text").or("false"),
    one(
        "replies",
        "N",
        "Replies to each message; 1 if nothing is said, 4 with payload amplify",
    ),
    one(
        "duration",
        "DURATION",
        "How long messages are sent; 10s if nothing else ends the load",
    ),
    one("messages", "N", "How many messages are sent, in all"),
    list(
        "rate",
        "PER_S",
        "Messages per second over all connections, at their intended times",
    ),
    list(
        "stages",
        "STAGES",
        "How that rate changes, DURATION:RATE each: 10s:1k,30s:5k goes to 1,000 a second within \
         10 s, from 0 or from the rate if one is given, and from there to 5,000 within 30 s",
    ),
    one(
        "poisson",
        "true|false",
        "Poisson arrivals instead of constant gaps",
    )
    .or("false"),
    one(
        "hold",
        "true|false",
        "Open the connections and hold them; nothing is sent",
    )
    .or("false"),
    list(
        "in_flight",
        "N",
        "Messages in flight on each connection; 1 without a rate, as many as it takes with one",
    ),
    list("batch", "N", "Messages that each connection sends at once"),
    one(
        "think",
        "DURATION",
        "From a reply to the next message of its connection, where no rate is given",
    ),
    list("wait", "DURATION", "From one batch to the next").or("1s"),
    one("batches", "N", "Batches that each connection sends"),
    one(
        "stagger",
        "DURATION",
        "Spread of the connections' first sends; of batches that of each wait if nothing is said, \
         and 0s sends all of them at once",
    ),
    one(
        "per_connection",
        "N",
        "Messages of each connection, after which it closes and the next one opens",
    ),
    one("open_max", "N", "Connections that are open at once"),
    one("conn_rate", "PER_S", "New connections per second"),
    list(
        "conn_concurrency",
        "N",
        "Handshakes in flight at once; 128 if nothing is said, or as many as conn-rate takes",
    ),
    list(
        "reconnect",
        "POLICY",
        "What follows a lost connection: never, a pause such as 500ms, exponential:100ms..10s or \
         exponential-jitter:100ms..10s",
    ),
    one(
        "drain",
        "DURATION",
        "How long replies are awaited after the last send",
    )
    .or("10s"),
    one(
        "threads",
        "N",
        "Threads of the generator; one for each processor it has if nothing is said",
    ),
    one(
        "fragments",
        "SHARES",
        "In how many frames messages are sent, such as 40%:1,40%:2,20%:3",
    ),
    one(
        "deflate",
        "PARAMETERS",
        "Offer permessage-deflate with these parameters, which may be empty",
    ),
];
