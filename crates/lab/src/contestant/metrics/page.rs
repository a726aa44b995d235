//! The body of an answer over HTTP, whole or not at all: a value that was cut off is another value.

use httparse::{EMPTY_HEADER, Response, Status, parse_chunk_size};

/// The text of an answer; the error is a clause.
pub(super) fn body(answer: &[u8]) -> Result<String, &'static str> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut head = Response::new(&mut headers);
    let Ok(Status::Complete(end)) = head.parse(answer) else {
        return Err("the answer has no head that can be read");
    };
    let rest = answer.get(end..).unwrap_or_default();
    if head.code != Some(200) {
        return Err("the answer is not a page");
    }
    let field = |name: &str| {
        let mut fields = head.headers.iter();
        let found = fields.find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(str::from_utf8(found.value).unwrap_or_default().trim())
    };
    let whole = match (field("transfer-encoding"), field("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => joined(rest).ok_or(CUT)?,
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
        let Ok(Status::Complete((start, size))) = parse_chunk_size(rest) else {
            return None;
        };
        if size == 0 {
            return Some(whole);
        }
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        whole.extend_from_slice(rest.get(start..end)?);
        // CR and LF stand behind each.
        rest = rest.get(end.checked_add(2)?..)?;
    }
}

/// More than any server sends with a page.
const HEADERS_MAX: usize = 64;
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
