//! A document on its way from one machine to another: machines live on threads of their own.

use super::{Array, DEPTH_MAX, Ledger, Node, Object, Problem};

/// A value that belongs to nobody's ledger and may change threads.
#[derive(Debug)]
pub(crate) enum Parcel {
    Null,
    Boolean(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(Box<[u8]>),
    Array(Vec<Self>),
    Object(Vec<(Box<[u8]>, Self)>),
}

impl Parcel {
    /// A copy of `node`.
    pub(crate) fn pack(node: &Node) -> Result<Self, Problem> {
        pack(node, DEPTH_MAX)
    }

    /// Bytes that it holds, without what the heap itself needs.
    pub(crate) fn bytes(&self) -> usize {
        let held: usize = match self {
            Self::Text(text) => text.len(),
            Self::Array(items) => items.iter().map(Self::bytes).sum(),
            Self::Object(items) => items
                .iter()
                .map(|(key, item)| size_of::<Box<[u8]>>() + key.len() + item.bytes())
                .sum(),
            Self::Null
            | Self::Boolean(_)
            | Self::Unsigned(_)
            | Self::Negative(_)
            | Self::Float(_) => 0,
        };
        size_of::<Self>() + held
    }

    /// The value as a document of another machine.
    pub(crate) fn unpack(&self, ledger: &Ledger) -> Result<Node, Problem> {
        Ok(match self {
            Self::Null => Node::Null,
            Self::Boolean(flag) => Node::Boolean(*flag),
            Self::Unsigned(number) => Node::Unsigned(*number),
            Self::Negative(number) => Node::Negative(*number),
            Self::Float(number) => Node::Float(*number),
            Self::Text(text) => Node::Text(text.clone()),
            Self::Array(items) => {
                let array = Array::new(ledger)?;
                items
                    .iter()
                    .try_for_each(|item| array.push(item.unpack(ledger)?))?;
                Node::Array(array)
            }
            Self::Object(items) => {
                let object = Object::new(ledger)?;
                items
                    .iter()
                    .try_for_each(|(key, item)| object.set(key, item.unpack(ledger)?))?;
                Node::Object(object)
            }
        })
    }
}

fn pack(node: &Node, depth: usize) -> Result<Parcel, Problem> {
    Ok(match node {
        Node::Null => Parcel::Null,
        Node::Boolean(flag) => Parcel::Boolean(*flag),
        Node::Unsigned(number) => Parcel::Unsigned(*number),
        Node::Negative(number) => Parcel::Negative(*number),
        Node::Float(number) => Parcel::Float(*number),
        Node::Text(text) => Parcel::Text(text.clone()),
        Node::Array(array) => {
            let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
            let mut items = Vec::with_capacity(array.len());
            array.try_each(|_, item| {
                items.push(pack(item, depth)?);
                Ok(())
            })?;
            Parcel::Array(items)
        }
        Node::Object(object) => {
            let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
            let mut items = Vec::with_capacity(object.len());
            object.try_each(|key, item| {
                items.push((key.into(), pack(item, depth)?));
                Ok(())
            })?;
            Parcel::Object(items)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{from_json, to_json};
    use super::*;

    #[test]
    fn a_value_arrives_as_it_left() {
        let text = br#"{"a":[null,true,1,-1,1.5,"x"],"b":{"c":{}}}"#;
        let ledger = Ledger::unlimited();
        let node = from_json(text, &ledger).unwrap();
        let parcel = Parcel::pack(&node).unwrap();
        drop(node);
        assert_eq!(ledger.bytes(), 0, "a parcel is in nobody's ledger");
        let node = parcel.unpack(&ledger).unwrap();
        assert_eq!(to_json(&node, usize::MAX).unwrap(), text);
        assert_eq!(
            parcel.unpack(&Ledger::new(Some(100))).unwrap_err(),
            Problem::Full
        );
    }
}
