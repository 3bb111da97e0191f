//! The fields of a JSON object, taken one by one, so that every error names the field and no field is ignored.

use crate::error::ApiError;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;

/// An object's fields that were not taken yet, as unparsed JSON. `null` counts as absent.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    /// Before the names of its fields in errors: empty, or `messages[2].`.
    path: String,
    fields: Vec<(String, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// Reads the fields of a request's body.
    pub(crate) fn of_body(body: &'a [u8]) -> Result<Self, ApiError> {
        let text = std::str::from_utf8(body).map_err(|error| {
            ApiError::body(format!("The body is not valid UTF-8: byte {} is wrong.", error.valid_up_to()))
        })?;
        let raw: &RawValue = serde_json::from_str(text)
            .map_err(|error| ApiError::body(format!("The body is not valid JSON: {error}.")))?;
        if !raw.get().starts_with('{') {
            return Err(ApiError::body(format!("The body must be a JSON object, not {}.", sort(raw))));
        }
        Self::of_object(raw.get(), String::new())
    }

    /// Reads the fields of the object `raw`, the value of the field `name`.
    pub(crate) fn of_field(raw: &'a RawValue, name: &str) -> Result<Self, ApiError> {
        if !raw.get().starts_with('{') {
            return Err(ApiError::field_type(name, format!("'{name}' must be an object, not {}.", sort(raw))));
        }
        Self::of_object(raw.get(), format!("{name}."))
    }

    fn of_object(text: &'a str, path: String) -> Result<Self, ApiError> {
        let Pairs(fields) = serde_json::from_str(text)
            .map_err(|error| ApiError::body(format!("The body is not valid JSON: {error}.")))?;
        let mut seen = HashSet::new();
        if let Some((name, _)) = fields.iter().find(|(name, _)| !seen.insert(name.as_str())) {
            return Err(ApiError::field(&format!("{path}{name}"), format!("'{path}{name}' is given twice.")));
        }
        Ok(Self { path, fields })
    }

    /// Returns the name of a field in errors.
    pub(crate) fn name(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// Returns whether a field is there that was not taken.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|(name, raw)| name == field && raw.get() != "null")
    }

    /// Gives a field that is absent this value.
    pub(crate) fn set_default(&mut self, field: &str, value: &'a RawValue) {
        if !self.has(field) {
            self.fields.retain(|(name, _)| name != field);
            self.fields.push((field.to_owned(), value));
        }
    }

    /// Takes a field as it is.
    pub(crate) fn raw(&mut self, field: &str) -> Option<&'a RawValue> {
        let at = self.fields.iter().position(|(name, _)| name == field)?;
        let (_, raw) = self.fields.swap_remove(at);
        (raw.get() != "null").then_some(raw)
    }

    /// Takes a field that must be there.
    pub(crate) fn required(&mut self, field: &str) -> Result<&'a RawValue, ApiError> {
        self.raw(field).ok_or_else(|| ApiError::missing(&self.name(field)))
    }

    fn typed<T: DeserializeOwned>(&mut self, field: &str, wanted: &str) -> Result<Option<T>, ApiError> {
        let Some(raw) = self.raw(field) else { return Ok(None) };
        typed(raw, &self.name(field), wanted).map(Some)
    }

    /// Takes a truth value.
    pub(crate) fn flag(&mut self, field: &str) -> Result<Option<bool>, ApiError> {
        self.typed(field, "a boolean")
    }

    /// Takes a string.
    pub(crate) fn string(&mut self, field: &str) -> Result<Option<String>, ApiError> {
        self.typed(field, "a string")
    }

    /// Takes a number in `range`.
    pub(crate) fn number(&mut self, field: &str, range: RangeInclusive<f32>) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.typed::<f32>(field, "a number")? else { return Ok(None) };
        if range.contains(&value) {
            return Ok(Some(value));
        }
        let name = self.name(field);
        let message = format!("'{name}' must be between {} and {}, not {value}.", range.start(), range.end());
        Err(ApiError::field(&name, message))
    }

    /// Takes an integer in `range`.
    pub(crate) fn integer(&mut self, field: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let Some(raw) = self.raw(field) else { return Ok(None) };
        let name = self.name(field);
        let value = match whole(raw) {
            Some(value) => value,
            None => typed::<i64>(raw, &name, "an integer")?,
        };
        if range.contains(&value) {
            Ok(Some(value))
        } else if *range.end() == i64::MAX || *range.end() == i64::from(u32::MAX) {
            Err(ApiError::field(&name, format!("'{name}' must be at least {}, not {value}.", range.start())))
        } else {
            let message = format!("'{name}' must be between {} and {}, not {value}.", range.start(), range.end());
            Err(ApiError::field(&name, message))
        }
    }

    /// Takes a field that the API has and this service does not, which may be given in one of its `neutral` values.
    pub(crate) fn neutral(&mut self, field: &str, neutral: &[Value]) -> Result<(), ApiError> {
        let Some(raw) = self.raw(field) else { return Ok(()) };
        let value: Value = typed(raw, &self.name(field), "JSON")?;
        if neutral.contains(&value) {
            return Ok(());
        }
        let name = self.name(field);
        let mut message = format!("'{name}' is not supported by this service");
        for (at, value) in neutral.iter().enumerate() {
            message.push_str(if at == 0 { ", except as " } else { " or " });
            message.push_str(&value.to_string());
        }
        message.push('.');
        Err(ApiError::unsupported(&name, message))
    }

    /// Ends the object: a field that was not taken is one that the API does not have.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.fields.iter().find(|(_, raw)| raw.get() != "null") {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::unknown_field(&self.name(name))),
        }
    }
}

/// Returns an integer that is written as a number with a fraction of 0, such as `2.0`.
fn whole(raw: &RawValue) -> Option<i64> {
    /// Above, numbers of JavaScript and Python leave out integers.
    const EXACT_MAX: f64 = (1u64 << 53) as f64;
    let number: f64 = raw.get().parse().ok().filter(|_| raw.get().contains(['.', 'e', 'E']))?;
    (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then_some(number as i64)
}

/// Reads `raw`, the value of the field `name`, as a `T`, which is `wanted` in words.
pub(crate) fn typed<'a, T: Deserialize<'a>>(raw: &'a RawValue, name: &str, wanted: &str) -> Result<T, ApiError> {
    serde_json::from_str(raw.get())
        .map_err(|_| ApiError::field_type(name, format!("'{name}' must be {wanted}, not {}.", sort(raw))))
}

/// Describes `raw` in words; small values are quoted.
pub(crate) fn sort(raw: &RawValue) -> String {
    /// Longest value that an error repeats.
    const SHOWN_BYTES_MAX: usize = 32;
    let text = raw.get();
    let sort = match text.as_bytes()[0] {
        b'{' => return "an object".to_owned(),
        b'[' => return "an array".to_owned(),
        b'"' => "the string",
        b't' | b'f' => "the boolean",
        b'n' => return "null".to_owned(),
        _ => "the number",
    };
    if text.len() <= SHOWN_BYTES_MAX { format!("{sort} {text}") } else { sort.replace("the", "a") }
}

/// The pairs of an object in order, twins included.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    pairs.push((name, map.next_value()?));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}
