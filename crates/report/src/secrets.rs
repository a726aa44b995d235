//! What must not stand in a result that is passed on: values of headers and URLs that let in
//! whoever has them.

/// A command line without them. What was in their place is a word that says so.
pub fn without_secrets(command_line: Vec<String>) -> Vec<String> {
    let mut is_header = false;
    let shown = command_line.into_iter().map(|argument| {
        let is_value = std::mem::replace(&mut is_header, ["-H", "--header"].contains(&&*argument));
        match argument.strip_prefix("--header=") {
            Some(header) => format!("--header={}", header_shown(header)),
            None if is_value => header_shown(&argument),
            None if argument.contains("://") => url_shown(&argument),
            None => argument,
        }
    });
    shown.collect()
}

/// The value of a header, unless its name says that it is a secret.
pub fn header_value_shown<'a>(name: &str, value: &'a str) -> &'a str {
    match is_secret(name) {
        true => HIDDEN,
        false => value,
    }
}

fn header_shown(header: &str) -> String {
    match header.split_once(':') {
        Some((name, _)) if is_secret(name) => format!("{name}: {HIDDEN}"),
        Some(_) | None => header.to_owned(),
    }
}

fn url_shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    let authority = place.split('/').next().unwrap_or_default();
    let place = match authority.rsplit_once('@') {
        Some((user, _)) => format!("{HIDDEN}{}", &place[user.len()..]),
        None => place.to_owned(),
    };
    let query = query.map_or_else(String::new, |query| {
        let parts = query.split('&').map(|part| match part.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
            Some(_) | None => part.to_owned(),
        });
        format!("?{}", parts.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{place}{query}")
}

fn is_secret(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

const HIDDEN: &str = "(hidden)";
/// Of the names of headers and parameters.
const SECRET_WORDS: [&str; 7] = [
    "auth", "cookie", "token", "secret", "password", "api-key", "apikey",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_everything_else_can_be_pasted_back() {
        let shown = |line: &str| {
            let line = line.split('|').map(str::to_owned).collect();
            without_secrets(line).join("|")
        };
        for (line, expected) in [
            (
                "load|ws://a/b?x=1|-H|X-Test: 1|-c|5",
                "load|ws://a/b?x=1|-H|X-Test: 1|-c|5",
            ),
            (
                "-H|Authorization: Bearer abc|--header=Cookie: a=b",
                "-H|Authorization: (hidden)|--header=Cookie: (hidden)",
            ),
            (
                "wss://user:pass@a:1/b?access_token=abc&x=1",
                "wss://(hidden)@a:1/b?access_token=(hidden)&x=1",
            ),
            (
                "--agent-token-file|secret.txt",
                "--agent-token-file|secret.txt",
            ),
        ] {
            assert_eq!(shown(line), expected);
        }
        assert_eq!(header_value_shown("X-Auth-Token", "abc"), HIDDEN);
        assert_eq!(header_value_shown("Origin", "abc"), "abc");
    }
}
