//! Arrays and objects: shared, changed in place, counted, and dropped without a recursion.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{GAP_MAX, Ledger, Node, Problem};

/// A reference to an array.
#[derive(Debug)]
pub(crate) struct Array(Rc<Body<Vec<Node>>>);

/// A reference to an object; its keys are in byte order.
#[derive(Debug)]
pub(crate) struct Object(Rc<Body<BTreeMap<Box<[u8]>, Node>>>);

impl Array {
    /// An empty one.
    pub(crate) fn new(ledger: &Ledger) -> Result<Self, Problem> {
        Body::new(ledger).map(Self)
    }

    /// Another reference to the same.
    pub(crate) fn share(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.content.borrow().len()
    }

    /// The item at `index`, from 0.
    pub(crate) fn get(&self, index: usize) -> Option<Node> {
        self.0.content.borrow().get(index).map(Node::share)
    }

    /// Adds `item` at the end.
    pub(crate) fn push(&self, item: Node) -> Result<(), Problem> {
        self.0.take(SLOT_BYTES + item.text_bytes())?;
        self.0.content.borrow_mut().push(item);
        Ok(())
    }

    /// Puts `item` at `index`, from 0; what lies between the end and there becomes null.
    pub(crate) fn set(&self, index: usize, item: Node) -> Result<(), Problem> {
        let len = self.len();
        let gap = index.saturating_sub(len);
        if gap > GAP_MAX {
            return Err(Problem::Gap);
        }
        let slots = (index + 1).saturating_sub(len);
        self.0.take(slots * SLOT_BYTES + item.text_bytes())?;
        let mut items = self.0.content.borrow_mut();
        if slots > 0 {
            items.resize_with(index + 1, || Node::Null);
        }
        let old = std::mem::replace(&mut items[index], item);
        drop(items);
        self.0.give_back(old.text_bytes());
        Ok(())
    }

    /// Takes the item at `index`, from 0, out; whether there was one.
    pub(crate) fn erase(&self, index: usize) -> bool {
        let mut items = self.0.content.borrow_mut();
        if index >= items.len() {
            return false;
        }
        let old = items.remove(index);
        drop(items);
        self.0.give_back(SLOT_BYTES + old.text_bytes());
        true
    }

    /// Calls `visit` with each index, from 0, and item until it fails.
    pub(crate) fn try_each<E>(
        &self,
        mut visit: impl FnMut(usize, &Node) -> Result<(), E>,
    ) -> Result<(), E> {
        let items = self.0.content.borrow();
        items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| visit(index, item))
    }
}

impl Object {
    /// An empty one.
    pub(crate) fn new(ledger: &Ledger) -> Result<Self, Problem> {
        Body::new(ledger).map(Self)
    }

    /// Another reference to the same.
    pub(crate) fn share(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.content.borrow().len()
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Node> {
        self.0.content.borrow().get(key).map(Node::share)
    }

    /// Gives `key` a value, new or instead of its old one.
    pub(crate) fn set(&self, key: &[u8], item: Node) -> Result<(), Problem> {
        let known = self.0.content.borrow().contains_key(key);
        let entry = if known { 0 } else { ENTRY_BYTES + key.len() };
        self.0.take(entry + item.text_bytes())?;
        let mut items = self.0.content.borrow_mut();
        let old = match items.get_mut(key) {
            Some(place) => Some(std::mem::replace(place, item)),
            None => items.insert(key.into(), item),
        };
        drop(items);
        self.0.give_back(old.as_ref().map_or(0, Node::text_bytes));
        Ok(())
    }

    /// Takes `key` out; whether it was there.
    pub(crate) fn erase(&self, key: &[u8]) -> bool {
        let Some(old) = self.0.content.borrow_mut().remove(key) else {
            return false;
        };
        self.0.give_back(ENTRY_BYTES + key.len() + old.text_bytes());
        true
    }

    /// Calls `visit` with each key and value, in byte order, until it fails.
    pub(crate) fn try_each<E>(
        &self,
        mut visit: impl FnMut(&[u8], &Node) -> Result<(), E>,
    ) -> Result<(), E> {
        let items = self.0.content.borrow();
        items.iter().try_for_each(|(key, item)| visit(key, item))
    }
}

/// What is behind a reference.
#[derive(Debug)]
struct Body<C: Content> {
    content: RefCell<C>,
    /// What `ledger` was told of this body, without the containers within it.
    bytes: Cell<usize>,
    ledger: Ledger,
}

impl<C: Content> Body<C> {
    fn new(ledger: &Ledger) -> Result<Rc<Self>, Problem> {
        ledger.take(BODY_BYTES)?;
        Ok(Rc::new(Self {
            content: RefCell::new(C::default()),
            bytes: Cell::new(BODY_BYTES),
            ledger: ledger.clone(),
        }))
    }

    fn take(&self, bytes: usize) -> Result<(), Problem> {
        self.ledger.take(bytes)?;
        self.bytes.set(self.bytes.get() + bytes);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        self.ledger.give_back(bytes);
    }
}

impl<C: Content> Drop for Body<C> {
    /// A service can build a chain of a million containers, and a recursion would end the process.
    fn drop(&mut self) {
        self.ledger.give_back(self.bytes.get());
        let mut pending = Vec::new();
        self.content.get_mut().leave(&mut pending);
        while let Some(node) = pending.pop() {
            match node {
                Node::Array(array) => leave(array.0, &mut pending),
                Node::Object(object) => leave(object.0, &mut pending),
                Node::Null
                | Node::Boolean(_)
                | Node::Unsigned(_)
                | Node::Negative(_)
                | Node::Float(_)
                | Node::Text(_) => {}
            }
        }
    }
}

/// Empties what nobody else refers to, so that its own drop has nothing to descend into.
fn leave<C: Content>(body: Rc<Body<C>>, pending: &mut Vec<Node>) {
    if let Some(mut body) = Rc::into_inner(body) {
        body.content.get_mut().leave(pending);
    }
}

/// What an array or an object holds.
trait Content: Default {
    /// Moves the containers out; the rest may stay.
    fn leave(&mut self, pending: &mut Vec<Node>);
}

impl Content for Vec<Node> {
    fn leave(&mut self, pending: &mut Vec<Node>) {
        pending.extend(self.drain(..).filter(is_container));
    }
}

impl Content for BTreeMap<Box<[u8]>, Node> {
    fn leave(&mut self, pending: &mut Vec<Node>) {
        pending.extend(std::mem::take(self).into_values().filter(is_container));
    }
}

fn is_container(node: &Node) -> bool {
    matches!(node, Node::Array(_) | Node::Object(_))
}

const BODY_BYTES: usize = size_of::<Body<BTreeMap<Box<[u8]>, Node>>>() + 2 * size_of::<usize>();
const SLOT_BYTES: usize = size_of::<Node>();
/// The nodes of the tree are two thirds full when keys arrive in any order.
const ENTRY_BYTES: usize = (size_of::<Box<[u8]>>() + size_of::<Node>()) * 3 / 2;
