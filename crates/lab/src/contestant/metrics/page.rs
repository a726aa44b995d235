//! The body of an answer over HTTP, whole or not at all: a value that was cut off is another value.

/// The text of an answer; the error is a clause.
pub(super) fn body(answer: &[u8]) -> Result<String, &'static str> {
    let end = find(answer, b"\r\n\r\n").ok_or("the answer has no end of its head")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let rest = &answer[end + 4..];
    if head.split_whitespace().nth(1) != Some("200") {
        return Err("the answer is not a page");
    }
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find_map(|(key, value)| (key == name).then_some(value.trim()))
    };
    let whole = match (field("transfer-encoding"), field("content-length")) {
        (Some("chunked"), _) => joined(rest).ok_or(CUT)?,
        (Some(_), _) => return Err("the answer is encoded in a way that is not read"),
        (None, Some(length)) => {
            let length = length.parse::<usize>().ok();
            rest.get(..length.ok_or(CUT)?).ok_or(CUT)?.to_owned()
        }
        // The last line of the format ends like all others.
        (None, None) if rest.ends_with(b"\n") => rest.to_owned(),
        (None, None) => return Err(CUT),
    };
    Ok(String::from_utf8_lossy(&whole).into_owned())
}

/// What chunks hold; `None` unless the last one is there.
fn joined(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = find(rest, b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?;
        // Extensions may follow the size.
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        rest = &rest[end + 2..];
        whole.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size.checked_add(2)?..)?;
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut windows = bytes.windows(wanted.len());
    windows.position(|window| window == wanted)
}

const CUT: &str = "the answer was cut off";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(answer: &str) -> Result<String, &'static str> {
        body(answer.as_bytes())
    }

    #[test]
    fn a_page_is_whole_or_none() {
        let page = |fields: &str, text: &str| of(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n{text}"));
        assert_eq!(page("", "in 1234\n").as_deref(), Ok("in 1234\n"));
        assert_eq!(page("", "in 12"), Err(CUT));
        assert_eq!(
            page("Content-Length: 7\r\n", "in 1234").as_deref(),
            Ok("in 1234")
        );
        assert_eq!(page("content-length: 8\r\n", "in 1234"), Err(CUT));
        assert!(of("HTTP/1.1 200 OK\r\n").is_err());
        assert!(of("HTTP/1.1 404 Not Found\r\n\r\nin 1234\n").is_err());
    }

    #[test]
    fn values_that_lie_in_two_chunks_are_one() {
        let chunked = |text: &str| {
            of(&format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{text}"
            ))
        };
        let whole = chunked("5\r\nin 12\r\n3;a=b\r\n34\n\r\n0\r\n\r\n");
        assert_eq!(whole.as_deref(), Ok("in 1234\n"));
        for cut in ["5\r\nin 12\r\n", "5\r\nin", "ffffffffffffffff\r\n", "x\r\n"] {
            assert_eq!(chunked(cut), Err(CUT), "{cut}");
        }
    }
}
