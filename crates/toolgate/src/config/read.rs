//! From a tree to typed values, by serde. An error keeps the line of the innermost value that it speaks of.

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
        value::StrDeserializer,
    },
    forward_to_deserialize_any,
};

use super::{
    node::{Entry, Kind, Node},
    wrong::Wrong,
};

impl Node {
    /// The value as what the program wants there.
    ///
    /// # Errors
    /// What is wrong with it, with its line.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Wrong> {
        T::deserialize(self)
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let value = match &self.kind {
            Kind::Nothing => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Number(value) => match (value.as_u64(), value.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (None, Some(value)) => visitor.visit_i64(value),
                (None, None) => visitor.visit_f64(value.as_f64().unwrap_or_default()),
            },
            Kind::Text(value) => visitor.visit_borrowed_str(value),
            Kind::List(items) => visitor.visit_seq(Items(items.iter())),
            Kind::Map(entries) => visitor.visit_map(Entries { rest: entries.iter(), value: None }),
        };
        value.map_err(|wrong| wrong.at(self.line))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.kind {
            Kind::Nothing => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self).map_err(|wrong| wrong.at(self.line))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let read = match &self.kind {
            Kind::Text(word) => {
                let word: StrDeserializer<'_, Wrong> = word.as_str().into_deserializer();
                visitor.visit_enum(word)
            }
            // YAML of old read these words as yes and no; the person means the word.
            Kind::Bool(value) => Err(Wrong::invalid_type(Unexpected::Bool(*value), &"a word")),
            _ => Err(Wrong::new("a word belongs there")),
        };
        read.map_err(|wrong| wrong.at(self.line))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        self.0.next().map(|node| seed.deserialize(node).map_err(|wrong| wrong.at(node.line))).transpose()
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, Entry>,
    value: Option<&'de Entry>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        let Some(entry) = self.rest.next() else { return Ok(None) };
        self.value = Some(entry);
        let key: StrDeserializer<'_, Wrong> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|wrong| wrong.at(entry.line))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let entry = self.value.take().ok_or_else(|| Wrong::new("a value without a key"))?;
        seed.deserialize(&entry.value).map_err(|wrong| wrong.at(entry.value.line).of(&entry.key))
    }
}
