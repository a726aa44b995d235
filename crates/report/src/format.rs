//! How numbers are printed: one place, so that every output reads alike.

/// A latency in microseconds with the unit that reads best and three significant digits.
pub(crate) fn latency(us: f64) -> String {
    let magnitude = us.abs();
    if magnitude < 1e-9 {
        "0".to_owned()
    } else if magnitude < 1.0 {
        format!("{} ns", significant(us * 1e3))
    } else if magnitude < 999.5 {
        format!("{} µs", significant(us))
    } else if magnitude < 999_500.0 {
        format!("{} ms", significant(us / 1e3))
    } else {
        format!("{} s", significant(us / 1e6))
    }
}

/// A latency at a tick of an axis: a round number of which every digit counts.
pub(crate) fn latency_tick(us: f64) -> String {
    let text = latency(us);
    let Some((_, unit)) = text.split_once(' ') else {
        return text;
    };
    let value = match unit {
        "ns" => us * 1e3,
        "µs" => us,
        "ms" => us / 1e3,
        _ => us / 1e6,
    };
    // Six digits leave out what the arithmetic of a step adds.
    let decimals = (5.0 - value.abs().log10().floor()).max(0.0) as usize;
    round_number(&format!("{value:.decimals$} {unit}"))
}

/// Seconds of a figure that has them in its name.
pub(crate) fn seconds(value: f64) -> String {
    match value.abs() {
        tiny if tiny < 1e-9 => "0 s".to_owned(),
        // Three digits, as of others.
        small if small < 0.995 => {
            let decimals = (2.0 - small.log10().floor()) as usize;
            format!("{value:.decimals$} s")
        }
        _ => format!("{} s", significant(value)),
    }
}

/// A latency for a figure that may be missing.
pub(crate) fn latency_or_dash(us: Option<f64>) -> String {
    us.map_or_else(dash, latency)
}

/// A duration or a size that was asked for: a round number, so zeros after its point go.
pub(crate) fn round_number(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text.to_owned(),
    }
}

/// Microseconds as a bare number of milliseconds, for tables whose caption names the unit.
pub(crate) fn milliseconds_or_dash(us: Option<f64>) -> String {
    us.map_or_else(dash, |us| {
        let ms = us / 1e3;
        if ms.abs() < 10.0 {
            format!("{ms:.3}")
        } else {
            format!("{ms:.2}")
        }
    })
}

/// A whole number with thousands separated by commas.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number per second.
pub(crate) fn rate(per_s: f64) -> String {
    if per_s >= 100.0 {
        count(per_s.round() as u64)
    } else {
        significant(per_s)
    }
}

/// Bytes in binary units.
pub(crate) fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled.abs() >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{scaled:.0} B")
    } else {
        format!("{} {}", significant(scaled), units[unit])
    }
}

/// A share of 1 in per cent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Cliff's delta, between -1 and 1.
pub(crate) fn delta(value: f64) -> String {
    format!("δ {value:+.2}")
}

/// Three significant digits, without an exponent.
pub(crate) fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 99.95 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// What stands where there is no figure.
pub(crate) fn dash() -> String {
    "–".to_owned()
}

/// Text made safe inside HTML and SVG, attributes included.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML 1.0 has no way to hold these two and the other control characters.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            control if control.is_control() && !"\n\t".contains(control) => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// Text of others as one line of Markdown that says what it says: names of runs, errors of servers.
pub(crate) fn in_markdown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut before = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let is_word = |other: Option<char>| other.is_some_and(char::is_alphanumeric);
        let is_markup = match character {
            '\\' | '`' | '*' | '<' | '~' | '#' | '&' | '|' => true,
            // Between letters and digits it is no emphasis.
            '_' => !(is_word(before) && is_word(characters.peek().copied())),
            // Brackets are the marks of intervals, and alone they are no link.
            '(' => before == Some(']'),
            _ => false,
        };
        safe.extend(is_markup.then_some('\\'));
        safe.push(if character.is_control() {
            ' '
        } else {
            character
        });
        before = Some(character);
    }
    safe
}

/// A text of several lines as a block of code in Markdown, whatever is in it.
pub(crate) fn fenced(language: &str, text: &str) -> String {
    let runs = text.split(|character| character != '`').map(str::len);
    // A fence is longer than any line of backticks in it.
    let longest = runs.max().unwrap_or(0);
    let fence = "`".repeat(FENCE_MIN.max(longest + 1));
    format!("{fence}{language}\n{text}\n{fence}\n")
}

const FENCE_MIN: usize = 3;

/// A command line as a shell would read it back.
pub(crate) fn command_line(arguments: &[String]) -> String {
    let plain = |argument: &str| {
        !argument.is_empty()
            && argument
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c))
    };
    let quoted = arguments.iter().map(|argument| {
        if plain(argument) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_take_the_unit_that_reads_best() {
        assert_eq!(latency(0.25), "250 ns");
        assert_eq!(latency(12.3456), "12.3 µs");
        assert_eq!(latency(999.6), "1.00 ms");
        assert_eq!(latency(40_123.0), "40.1 ms");
        assert_eq!(latency(1_500_000.0), "1.50 s");
    }

    #[test]
    fn what_is_named_by_seconds_has_seconds() {
        let told = [0.0, 0.0592, 0.000_123_4, 0.999, 12.345, 183.2].map(seconds);
        let expected = ["0 s", "0.0592 s", "0.000123 s", "1.00 s", "12.3 s", "183 s"];
        assert_eq!(told, expected);
    }

    #[test]
    fn counts_and_bytes_are_readable() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(1536.0), "1.50 KiB");
    }

    #[test]
    fn markup_cannot_be_smuggled_in() {
        assert_eq!(
            escaped("</script>&\"'\u{1}"),
            "&lt;/script&gt;&amp;&quot;&#39;\u{fffd}"
        );
        assert_eq!(escaped("a\u{fffe}\u{ffff}"), "a\u{fffd}\u{fffd}");
    }

    #[test]
    fn text_of_others_is_no_markdown() {
        assert_eq!(
            in_markdown("*a* <b> [c](d) `e` ~f~ | #1 &lt; \\\n# g"),
            r"\*a\* \<b> [c]\(d) \`e\` \~f\~ \| \#1 \&lt; \\ \# g"
        );
        // What is none is left as it is.
        let plain = "c100_b1_s1024 (response p99 [1.9 ms, 2.1 ms]), p(99) > 5";
        assert_eq!(in_markdown(plain), plain);
        assert_eq!(in_markdown("_a_"), r"\_a\_");
    }

    #[test]
    fn a_command_line_can_be_pasted_back() {
        let arguments = ["moonwire", "load", "--slo", "p(99)<5ms", "it's"].map(str::to_owned);
        assert_eq!(
            command_line(&arguments),
            r"moonwire load --slo 'p(99)<5ms' 'it'\''s'"
        );
    }
}
