//! Fields that take a scalar or a map. The scalar is the common case.

/// Implements deserialization of a two-variant enum from a scalar or from a map. Unlike serde's untagged
/// enums, it keeps the error of the variant that the input selects.
macro_rules! either {
    (
        $type:ident, $name:literal, $what:literal,
        scalar: $scalar:ident($of_scalar:ty), map: $map:ident($of_map:ty), with: $wrap:expr
    ) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Either;

                impl Either {
                    fn scalar<E: serde::de::Error>(
                        value: impl serde::de::IntoDeserializer<'static, E>,
                    ) -> Result<$type, E> {
                        <$of_scalar as serde::Deserialize>::deserialize(value.into_deserializer())
                            .map($type::$scalar)
                    }
                }

                impl<'de> serde::de::Visitor<'de> for Either {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($what)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        Self::scalar(text.to_owned())
                    }

                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$type, E> {
                        Self::scalar(number)
                    }

                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$type, E> {
                        Self::scalar(number)
                    }

                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$type, E> {
                        Self::scalar(number)
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        let map = serde::de::value::MapAccessDeserializer::new(map);
                        <$of_map as serde::Deserialize>::deserialize(map).map($wrap).map($type::$map)
                    }
                }

                from.deserialize_any(Either)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let scalar = generator.subschema_for::<$of_scalar>();
                let map = generator.subschema_for::<$of_map>();
                schemars::json_schema!({ "anyOf": [scalar, map] })
            }
        }
    };
}

pub(super) use either;
