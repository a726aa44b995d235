//! A JSON document as services of LAppS hold it: one tree, whose arrays and objects are handed out
//! by reference. What is written through a nested one shows in the whole.
//!
//! Nothing here knows Lua. What all documents of an instance hold in memory is counted in its
//! [`Ledger`], because the garbage collector of the machine sees only the handles.

mod body;
mod cbor;
mod json;
mod ledger;
mod parcel;

use std::fmt;

pub(crate) use body::{Array, Object};
pub(crate) use cbor::{from_cbor, to_cbor};
pub(crate) use json::{from_json, to_json, to_json_pretty};
pub(crate) use ledger::Ledger;
pub(crate) use parcel::Parcel;

/// One value. Arrays and objects are references: two handles can name the same one.
#[derive(Debug)]
pub(crate) enum Node {
    Null,
    Boolean(bool),
    Unsigned(u64),
    /// Below zero.
    Negative(i64),
    Float(f64),
    /// As Lua has it: any bytes. JSON takes UTF-8 only.
    Text(Box<[u8]>),
    Array(Array),
    Object(Object),
}

impl Node {
    /// The same value: another reference for an array or an object, a copy for the rest.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Null => Self::Null,
            Self::Boolean(flag) => Self::Boolean(*flag),
            Self::Unsigned(number) => Self::Unsigned(*number),
            Self::Negative(number) => Self::Negative(*number),
            Self::Float(number) => Self::Float(*number),
            Self::Text(text) => Self::Text(text.clone()),
            Self::Array(array) => Self::Array(array.share()),
            Self::Object(object) => Self::Object(object.share()),
        }
    }

    /// A value of its own, down to the leaves.
    pub(crate) fn copy(&self, ledger: &Ledger) -> Result<Self, Problem> {
        self.copy_at(ledger, DEPTH_MAX)
    }

    fn copy_at(&self, ledger: &Ledger, depth: usize) -> Result<Self, Problem> {
        match self {
            Self::Array(array) => {
                let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
                let copy = Array::new(ledger)?;
                array.try_each(|_, item| copy.push(item.copy_at(ledger, depth)?))?;
                Ok(Self::Array(copy))
            }
            Self::Object(object) => {
                let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
                let copy = Object::new(ledger)?;
                object.try_each(|key, item| copy.set(key, item.copy_at(ledger, depth)?))?;
                Ok(Self::Object(copy))
            }
            Self::Null
            | Self::Boolean(_)
            | Self::Unsigned(_)
            | Self::Negative(_)
            | Self::Float(_)
            | Self::Text(_) => Ok(self.share()),
        }
    }

    /// The number, whatever its kind.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Unsigned(number) => Some(*number as f64),
            Self::Negative(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Null | Self::Boolean(_) | Self::Text(_) | Self::Array(_) | Self::Object(_) => {
                None
            }
        }
    }

    /// What `nljson.typename` calls it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "boolean",
            Self::Unsigned(_) | Self::Negative(_) | Self::Float(_) => "number",
            Self::Text(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// Bytes beside the node itself that are not counted by a container of their own.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Null
            | Self::Boolean(_)
            | Self::Unsigned(_)
            | Self::Negative(_)
            | Self::Float(_)
            | Self::Array(_)
            | Self::Object(_) => 0,
        }
    }
}

/// Why a document cannot be made, changed or written.
#[derive(Debug, PartialEq)]
pub(crate) enum Problem {
    /// More containers within containers than [`DEPTH_MAX`].
    TooDeep,
    /// The documents of this instance would take more memory than it may have.
    Full,
    /// What was read would take much more memory than its bytes.
    OutOfProportion,
    /// An index that is too far beyond the end of an array.
    Gap,
    /// What was read is not what it should be, with the place.
    Syntax(String),
    /// A text that is not UTF-8 and so cannot be JSON.
    NotUtf8,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => write!(f, "more than {DEPTH_MAX} containers within each other"),
            Self::Full => f.write_str("not enough memory"),
            Self::OutOfProportion => f.write_str("it would take much more memory than its bytes"),
            Self::Gap => write!(
                f,
                "the index is more than {GAP_MAX} beyond the end of the array"
            ),
            Self::Syntax(text) => f.write_str(text),
            Self::NotUtf8 => f.write_str("a string is not UTF-8"),
        }
    }
}

/// Containers within containers, in every direction: each is walked by a recursion, and a peer
/// chooses how deep its messages are.
pub(crate) const DEPTH_MAX: usize = 127;

/// How far beyond the end an array may be written to; the gap is filled with nulls.
pub(crate) const GAP_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(node: &Node) -> String {
        String::from_utf8(to_json(node, usize::MAX).unwrap()).unwrap()
    }

    #[test]
    fn a_write_through_a_nested_handle_shows_in_the_root() {
        let ledger = Ledger::unlimited();
        let root = from_json(br#"{"a":[{"b":0}]}"#, &ledger).unwrap();
        let Node::Object(object) = &root else {
            panic!("an object")
        };
        let Some(Node::Array(array)) = object.get(b"a") else {
            panic!("an array")
        };
        let Some(Node::Object(inner)) = array.get(0) else {
            panic!("an object")
        };
        inner.set(b"b", Node::Float(7.0)).unwrap();
        assert_eq!(text(&root), r#"{"a":[{"b":7.0}]}"#);
    }

    #[test]
    fn a_copy_is_its_own() {
        let ledger = Ledger::unlimited();
        let root = from_json(br#"{"a":[1,2]}"#, &ledger).unwrap();
        let copy = root.copy(&ledger).unwrap();
        let Node::Object(object) = &root else {
            panic!("an object")
        };
        object.set(b"a", Node::Null).unwrap();
        assert_eq!(text(&copy), r#"{"a":[1,2]}"#);
    }

    #[test]
    fn what_is_dropped_is_not_counted() {
        let ledger = Ledger::unlimited();
        let root = from_json(br#"{"a":["some text",{"b":[1,2,3]}],"c":"more"}"#, &ledger).unwrap();
        let Node::Object(object) = &root else {
            panic!("an object")
        };
        let before = ledger.bytes();
        assert!(before > 40, "{before}");
        object
            .set(b"c", Node::Text(vec![b'x'; 1000].into()))
            .unwrap();
        assert_eq!(ledger.bytes(), before + 1000 - 4);
        assert!(object.erase(b"a"));
        assert!(ledger.bytes() < before + 1000 - 9);
        drop(root);
        assert_eq!(ledger.bytes(), 0);
    }

    #[test]
    fn memory_is_bounded_and_a_refused_write_changes_nothing() {
        let ledger = Ledger::new(Some(1000));
        let array = Array::new(&ledger).unwrap();
        let large = || Node::Text(vec![b'x'; 2000].into());
        assert_eq!(array.push(large()), Err(Problem::Full));
        assert_eq!(array.set(0, large()), Err(Problem::Full));
        assert_eq!(array.len(), 0);
        array.push(Node::Null).unwrap();
        let long = format!("[{}]", "1,".repeat(1000) + "1");
        assert_eq!(
            from_json(long.as_bytes(), &ledger).unwrap_err(),
            Problem::Full
        );
        drop(array);
        assert_eq!(ledger.bytes(), 0);
    }

    #[test]
    fn a_gap_is_filled_with_nulls_and_bounded() {
        let ledger = Ledger::unlimited();
        let array = Array::new(&ledger).unwrap();
        array.set(2, Node::Boolean(true)).unwrap();
        assert_eq!(array.set(usize::MAX, Node::Null), Err(Problem::Gap));
        assert_eq!(array.set(3 + GAP_MAX + 1, Node::Null), Err(Problem::Gap));
        assert_eq!(text(&Node::Array(array.share())), "[null,null,true]");
        array.set(3 + GAP_MAX, Node::Null).unwrap();
        assert_eq!(array.len(), 3 + GAP_MAX + 1);
    }

    #[test]
    fn a_chain_that_grew_beyond_every_bound_is_refused_and_dropped_in_peace() {
        let ledger = Ledger::unlimited();
        let root = Object::new(&ledger).unwrap();
        let mut leaf = root.share();
        for _ in 0..200_000 {
            let next = Object::new(&ledger).unwrap();
            leaf.set(b"x", Node::Object(next.share())).unwrap();
            leaf = next;
        }
        drop(leaf);
        let root = Node::Object(root);
        assert_eq!(to_json(&root, usize::MAX).unwrap_err(), Problem::TooDeep);
        assert_eq!(to_cbor(&root).unwrap_err(), Problem::TooDeep);
        assert_eq!(root.copy(&ledger).unwrap_err(), Problem::TooDeep);
        drop(root);
        assert_eq!(ledger.bytes(), 0);
    }
}
