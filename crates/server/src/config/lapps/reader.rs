//! Taking the keys of a JSON object one by one; what is left at the end was not understood.

use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value};

use super::super::ConfigError;

/// An object of one of the two files.
pub(super) struct Reader<'a> {
    file: &'a Path,
    /// Where the object is in the file: empty, or such as `workers.`.
    prefix: String,
    object: Map<String, Value>,
    remarks: &'a mut Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        file: &'a Path,
        object: Map<String, Value>,
        remarks: &'a mut Vec<String>,
    ) -> Self {
        Self {
            file,
            prefix: String::new(),
            object,
            remarks,
        }
    }

    /// The object at `key`; an empty one if there is none.
    pub(super) fn object(&mut self, key: &str) -> Result<Reader<'_>, ConfigError> {
        let object = match self.object.remove(key) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(object)) => object,
            Some(other) => return Err(self.wrong(key, "an object", &other)),
        };
        Ok(Reader {
            file: self.file,
            prefix: format!("{}{key}.", self.prefix),
            object,
            remarks: self.remarks,
        })
    }

    /// The keys that are left.
    pub(super) fn keys(&self) -> Vec<String> {
        self.object.keys().cloned().collect()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.object.get(key).is_some_and(|value| !value.is_null())
    }

    pub(super) fn boolean(&mut self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.object.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(key, "true or false", &other)),
        }
    }

    pub(super) fn integer(
        &mut self,
        key: &str,
        bounds: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ConfigError> {
        let Some(value) = self.object.remove(key).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        match value.as_i64().filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (min, max) = (bounds.start(), bounds.end());
                Err(self.wrong(key, &format!("an integer from {min} to {max}"), &value))
            }
        }
    }

    pub(super) fn number(
        &mut self,
        key: &str,
        bounds: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.object.remove(key).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        match value.as_f64().filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (min, max) = (bounds.start(), bounds.end());
                Err(self.wrong(key, &format!("a number from {min} to {max}"), &value))
            }
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, ConfigError> {
        match self.object.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a string", &other)),
        }
    }

    /// A list of strings; an empty one if there is none.
    pub(super) fn texts(&mut self, key: &str) -> Result<Vec<String>, ConfigError> {
        let items = match self.object.remove(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.wrong(key, "a list of strings", &other)),
        };
        let text = |item: Value| {
            let text = item.as_str().map(str::to_owned);
            text.ok_or_else(|| self.wrong(key, "a list of strings", &item))
        };
        items.into_iter().map(text).collect()
    }

    /// Takes a key that has no effect here, and says so with the reason.
    pub(super) fn ignore(&mut self, key: &str, why: &str) {
        if self.object.remove(key).is_some() {
            self.remark(&format!("`{}{key}` has no effect: {why}", self.prefix));
        }
    }

    /// Something that the user should know.
    pub(super) fn remark(&mut self, sentence: &str) {
        self.remarks
            .push(format!("{}: {sentence}", self.file.display()));
    }

    /// Names what was not understood.
    pub(super) fn finish(mut self) {
        for key in self.keys() {
            self.remark(&format!("`{}{key}` is no key of LAppS", self.prefix));
        }
    }

    /// A sentence about a key.
    pub(super) fn error(&self, key: &str, sentence: &str) -> ConfigError {
        ConfigError::of_file(self.file, format!("`{}{key}` {sentence}", self.prefix))
    }

    fn wrong(&self, key: &str, wanted: &str, found: &Value) -> ConfigError {
        self.error(key, &format!("is {found} and must be {wanted}"))
    }
}
