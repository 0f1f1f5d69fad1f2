//! JSON in a form that does not depend on how it was written: objects by their keys, no white space, each string in one
//! spelling. Numbers stay as they are written, so that those of any size stay exact.

use std::borrow::Cow;

use crate::error::{Error, Result};

/// The canonical form of a JSON text.
///
/// # Errors
/// `Invalid` for a text that is not JSON.
pub(crate) fn canonical(text: &[u8]) -> Result<Vec<u8>> {
    let mut form = Vec::with_capacity(text.len());
    Reader::new(text)?.whole_value()?.write(&mut form);
    Ok(form)
}

/// The canonical form of an object's fields with these names, in this order, as a list.
///
/// # Errors
/// `Invalid` for a text that is no object, and a field that it has not.
pub(crate) fn fields(text: &[u8], names: &[String]) -> Result<Vec<u8>> {
    let Value::Object(pairs) = Reader::new(text)?.whole_value()? else {
        return Err(Error::invalid("the arguments are no JSON object, so a unique key can't be made of their fields"));
    };
    let mut form = vec![b'['];
    for name in names {
        let Some((_, value)) = pairs.iter().find(|(key, _)| key == name) else {
            let known: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
            return Err(Error::invalid(format!(
                "the arguments have no field \"{name}\" to make a unique key of; they have {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )));
        };
        value.write(&mut form);
        form.push(b',');
    }
    form.push(b']');
    Ok(form)
}

enum Value<'a> {
    /// `null`, a truth value or a number.
    Word(&'a [u8]),
    Text(String),
    List(Vec<Value<'a>>),
    Object(Vec<(String, Value<'a>)>),
}

impl Value<'_> {
    fn write(&self, form: &mut Vec<u8>) {
        match self {
            Self::Word(word) => form.extend_from_slice(word),
            Self::Text(text) => write_text(text, form),
            Self::List(values) => {
                form.push(b'[');
                for value in values {
                    value.write(form);
                    form.push(b',');
                }
                form.push(b']');
            }
            Self::Object(pairs) => {
                form.push(b'{');
                for (key, value) in pairs {
                    write_text(key, form);
                    form.push(b':');
                    value.write(form);
                    form.push(b',');
                }
                form.push(b'}');
            }
        }
    }
}

fn write_text(text: &str, form: &mut Vec<u8>) {
    form.push(b'"');
    for byte in text.bytes() {
        if matches!(byte, b'"' | b'\\') {
            form.push(b'\\');
        }
        form.push(byte);
    }
    form.push(b'"');
}

/// Reads a text that was found to be JSON.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Result<Self> {
        let _: serde::de::IgnoredAny = serde_json::from_slice(text)
            .map_err(|error| Error::invalid(format!("not valid JSON: {error}")).because(error))?;
        Ok(Self { rest: text })
    }

    fn whole_value(&mut self) -> Result<Value<'a>> {
        self.value().ok_or_else(|| Error::invalid("the arguments can't be read as JSON"))
    }

    fn value(&mut self) -> Option<Value<'a>> {
        match self.peek()? {
            b'"' => self.text().map(Value::Text),
            b'[' => self.list(),
            b'{' => self.object(),
            _ => {
                let end = self.rest.iter().position(|byte| b",]} \t\r\n".contains(byte)).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                Some(Value::Word(word))
            }
        }
    }

    fn list(&mut self) -> Option<Value<'a>> {
        let mut values = Vec::new();
        self.skip(b'[')?;
        while self.peek()? != b']' {
            values.push(self.value()?);
            if self.peek()? == b',' {
                self.skip(b',')?;
            }
        }
        self.skip(b']')?;
        Some(Value::List(values))
    }

    fn object(&mut self) -> Option<Value<'a>> {
        let mut pairs = Vec::new();
        self.skip(b'{')?;
        while self.peek()? != b'}' {
            let key = self.text()?;
            self.skip(b':')?;
            pairs.push((key, self.value()?));
            if self.peek()? == b',' {
                self.skip(b',')?;
            }
        }
        self.skip(b'}')?;
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        Some(Value::Object(pairs))
    }

    /// A string, with its escapes resolved.
    fn text(&mut self) -> Option<String> {
        if self.peek()? != b'"' {
            return None;
        }
        let mut end = 1;
        while *self.rest.get(end)? != b'"' {
            end += if self.rest[end] == b'\\' { 2 } else { 1 };
        }
        let (literal, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        serde_json::from_slice::<Cow<'_, str>>(literal).ok().map(Cow::into_owned)
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    fn skip(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.rest = &self.rest[1..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        String::from_utf8(canonical(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn order_of_keys_white_space_and_escapes_do_not_matter() {
        let one = r#" {"b": [1, {"y":null, "x":"A\u00e9\"\\"}], "a": true}"#;
        let other = "{\"a\":true,\n\"b\":[1,{\"x\":\"\\u0041é\\\"\\\\\",\"y\":null}]}";
        assert_eq!(form(one), form(other));
        assert_eq!(form(one), r#"{"a":true,"b":[1,{"x":"Aé\"\\","y":null,},],}"#);
    }

    #[test]
    fn what_differs_stays_different() {
        let texts = [
            "[]",
            "{}",
            "null",
            "0",
            "1",
            "-1",
            "\"1\"",
            "[1]",
            "[[1]]",
            "[1,2]",
            "[2,1]",
            "\"\"",
            "\"null\"",
            "18446744073709551616",
            "18446744073709551617",
            "{\"a\":1}",
            "{\"a\":[1]}",
            "{\"a\":1,\"b\":1}",
            r#"["a,b"]"#,
            r#"["a","b"]"#,
            r#"["a\",\"b"]"#,
        ];
        for (at, one) in texts.iter().enumerate() {
            for other in &texts[..at] {
                assert_ne!(form(one), form(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn fields_are_taken_by_name_and_a_missing_one_is_named() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let of = |text: &str, wanted: &[&str]| fields(text.as_bytes(), &names(wanted));
        assert_eq!(
            of(r#"{"user": 7, "day": "x", "n": 1}"#, &["day", "user"]).unwrap(),
            of(r#"{"n": 2, "day": "x", "user": 7}"#, &["day", "user"]).unwrap()
        );
        let missing = of(r#"{"user": 7}"#, &["usr"]).unwrap_err().to_string();
        assert!(missing.contains("no field \"usr\"") && missing.ends_with("they have user"), "{missing}");
        assert!(of("[1]", &["user"]).unwrap_err().to_string().contains("no JSON object"));
    }

    #[test]
    fn text_that_is_no_json_is_refused() {
        for wrong in ["", "{", "[1,]", "nul", "1 2"] {
            assert!(canonical(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
