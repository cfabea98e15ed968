//! Reading JSON that servers wrote: what is broken in known ways is mended, and what must come back is kept as the bytes it was.

use serde_json::{Value, value::RawValue};

/// A text with something in it.
pub(super) fn filled(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// The bytes of a value's member, as the server wrote them.
pub(super) fn raw_at<'a>(data: &'a str, path: &[&str]) -> Option<&'a RawValue> {
    let mut raw: &RawValue = serde_json::from_str(data).ok()?;
    for name in path {
        let members: Members<'a> = serde_json::from_str(raw.get()).ok()?;
        raw = members.0.into_iter().rfind(|(own, _)| own == name)?.1;
    }
    Some(raw)
}

/// The elements of a list, as the server wrote them; none where it is no list.
pub(super) fn raw_list(raw: Option<&RawValue>) -> Vec<&RawValue> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// The members of an object, in order.
#[derive(Default)]
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl serde::Serialize for Members<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// JSON, also where a character outside the basic plane was cut into two halves: each becomes U+FFFD.
pub(super) fn parse(data: &str) -> Option<Value> {
    serde_json::from_str(data).ok().or_else(|| {
        let mut mended = String::with_capacity(data.len());
        let mut rest = data;
        while let Some(at) = rest.find('\\') {
            let (before, escape) = rest.split_at(at);
            mended.push_str(before);
            let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
            let pair = matches!(unit(escape), Some(0xD800..0xDC00))
                && matches!(escape.get(6..).and_then(unit), Some(0xDC00..0xE000));
            let length = match unit(escape) {
                Some(0xD800..0xE000) if !pair => {
                    mended.push_str("\\ufffd");
                    rest = &escape[6..];
                    continue;
                }
                Some(_) if pair => 12,
                Some(_) => 6,
                // Two bytes at most are taken, and never half a character.
                None => escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end),
            };
            mended.push_str(&escape[..length]);
            rest = &escape[length..];
        }
        mended.push_str(rest);
        serde_json::from_str(&mended).ok()
    })
}
