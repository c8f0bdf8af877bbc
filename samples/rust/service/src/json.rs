//! JSON as all the services read it. serde_json takes the last of a name that stands twice, where other readers take the
//! first, so that two of them would see two jobs; and its refusals name types of Rust's.
use crate::failure::{excerpt, Failure, Result};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// A value in whose objects no name stands twice.
struct Strict(Value);

struct Reader;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Strict, D::Error> {
        from.deserialize_any(Reader)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Strict;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, value: bool) -> std::result::Result<Strict, E> {
        Ok(Strict(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> std::result::Result<Strict, E> {
        Ok(Strict(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> std::result::Result<Strict, E> {
        Ok(Strict(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> std::result::Result<Strict, E> {
        Ok(Strict(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }
    fn visit_str<E>(self, value: &str) -> std::result::Result<Strict, E> {
        Ok(Strict(value.into()))
    }
    fn visit_unit<E>(self) -> std::result::Result<Strict, E> {
        Ok(Strict(Value::Null))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> std::result::Result<Strict, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(one)) = from.next_element()? {
            all.push(one);
        }
        Ok(Strict(Value::Array(all)))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> std::result::Result<Strict, A::Error> {
        let mut all = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            if all.contains_key(&name) {
                return Err(A::Error::custom(format!("{:?} stands twice in an object", excerpt(&name))));
            }
            let Strict(value) = from.next_value()?;
            all.insert(name, value);
        }
        Ok(Strict(Value::Object(all)))
    }
}

/// The object that a body is.
pub fn parse(bytes: &[u8]) -> Result<Map<String, Value>> {
    match serde_json::from_slice(bytes) {
        Ok(Strict(Value::Object(all))) => Ok(all),
        Ok(_) => Err(Failure::wrong("the body is an object of JSON")),
        Err(error) => Err(Failure::wrong(format!("the body cannot be read: {error}"))),
    }
}

/// Refuses names that mean nothing.
pub fn only(given: &Map<String, Value>, names: &[&str]) -> Result<()> {
    match given.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(Failure::wrong(format!("there is no field {:?}", excerpt(name)))),
        None => Ok(()),
    }
}

fn wrong(name: &str, found: &Value, expected: &str) -> Failure {
    let found = match found {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(_) => "a text".into(),
        Value::Bool(_) => "true or false".into(),
        other => excerpt(&other.to_string()),
    };
    Failure::wrong(format!("{name} is {found}; {expected} is expected"))
}

/// What a field has; null is nothing.
fn field<'a>(given: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    given.get(name).filter(|one| !one.is_null())
}

pub fn object(name: &str, value: &Value) -> Result<Map<String, Value>> {
    value.as_object().cloned().ok_or_else(|| wrong(name, value, "an object"))
}

pub fn objects(given: &Map<String, Value>, name: &str) -> Result<Map<String, Value>> {
    field(given, name).map_or(Ok(Map::new()), |one| object(name, one))
}

pub fn text(given: &Map<String, Value>, name: &str) -> Result<String> {
    let read = |one: &Value| one.as_str().map(String::from).ok_or_else(|| wrong(name, one, "a text"));
    field(given, name).map_or(Ok(String::new()), read)
}

pub fn integer(given: &Map<String, Value>, name: &str) -> Result<i64> {
    let read = |one: &Value| one.as_i64().ok_or_else(|| wrong(name, one, "an integer"));
    field(given, name).map_or(Ok(0), read)
}

pub fn number(given: &Map<String, Value>, name: &str) -> Result<f64> {
    let read = |one: &Value| one.as_f64().ok_or_else(|| wrong(name, one, "a number"));
    field(given, name).map_or(Ok(0.0), read)
}

/// The elements of a list.
pub fn list<T>(given: &Map<String, Value>, name: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>> {
    let Some(value) = field(given, name) else { return Ok(Vec::new()) };
    let all = value.as_array().ok_or_else(|| wrong(name, value, "a list"))?;
    all.iter().map(|one| read(one).ok_or_else(|| wrong(name, one, "a number"))).collect()
}
