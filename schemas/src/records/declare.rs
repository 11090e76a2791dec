//! Macros that declare records, their parts and their enums. Single values are encoded in `avro`.

/// Declares a struct. Its fields are encoded in the order of declaration.
///
/// With `: "name" = id` after the name, the struct is a record with the schema `avro/<name>.avsc`. A field marked `=>
/// length` contains text of a person, so `Debug` prints only its length.
macro_rules! record {
    (@hidden) => { false };
    (@hidden length) => { true };
    ($(#[$meta:meta])* pub struct $Name:ident $(: $name:literal = $id:literal)? {
        $($(#[$about:meta])* pub $field:ident: $ty:ty $(=> $hidden:ident)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $Name {
            $($(#[$about])* pub $field: $ty,)*
        }

        impl $crate::records::avro::Field for $Name {
            const MIN_BYTES: usize = 0 $(+ <$ty as $crate::records::avro::Field>::MIN_BYTES)*;

            fn size(&self) -> usize {
                0 $(+ $crate::records::avro::Field::size(&self.$field))*
            }

            fn write(&self, out: &mut Vec<u8>) {
                $($crate::records::avro::Field::write(&self.$field, out);)*
            }

            fn read(
                from: &mut $crate::records::avro::Reader<'_>,
            ) -> Result<Self, $crate::records::avro::RecordDecodeError> {
                Ok(Self {$(
                    $field: match $crate::records::avro::Field::read(from) {
                        Ok(value) => value,
                        Err(malformed) => return Err(malformed.at_field(stringify!($field))),
                    },
                )*})
            }

            fn show(&self, f: &mut std::fmt::Formatter<'_>, _hidden: bool) -> std::fmt::Result {
                std::fmt::Debug::fmt(self, f)
            }
        }

        #[cfg(test)]
        impl $crate::records::tests::draw::Draw for $Name {
            const NAMES: &[&str] = &[$(stringify!($field)),*];

            fn draw(from: &mut $crate::records::tests::draw::Entropy<'_>) -> Self {
                Self { $($field: $crate::records::tests::draw::Draw::draw(from),)* }
            }
        }

        impl std::fmt::Debug for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($Name))
                    $(.field(
                        stringify!($field),
                        &$crate::records::avro::FieldDebug { field: &self.$field, hidden: record!(@hidden $($hidden)?) },
                    ))*
                    .finish()
            }
        }

        $(impl $crate::records::Record for $Name {
            const NAME: &str = $name;
            const SCHEMA: &str = include_str!(concat!("../../avro/", $name, ".avsc"));
            const SCHEMA_ID: u32 = $id;

            fn size(&self) -> usize {
                $crate::records::avro::Field::size(self)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                // The exact size is known, so the buffer grows at most once.
                out.reserve($crate::records::avro::Field::size(self));
                $crate::records::avro::Field::write(self, out);
            }

            fn decode(datum: &bytes::Bytes) -> Result<Self, $crate::records::avro::RecordDecodeError> {
                $crate::records::avro::decode_datum(datum).map_err(|malformed| malformed.of($name))
            }
        })?
    };
}

/// Declares an enum that is encoded as the index of its symbol. New symbols are added at the end, because stored
/// records contain the indices.
macro_rules! symbols {
    ($(#[$meta:meta])* pub enum $Name:ident {
        $($(#[$about:meta])* $Symbol:ident = $symbol:literal,)*
    }) => {
        $crate::string_enum! {
            $(#[$meta])*
            pub enum $Name {
                $($(#[$about])* $Symbol = $symbol,)*
            }
        }

        #[cfg(test)]
        impl $crate::records::tests::draw::Draw for $Name {
            const NAMES: &[&str] = &[$($symbol),*];

            fn draw(from: &mut $crate::records::tests::draw::Entropy<'_>) -> Self {
                Self::ALL[from.below(Self::ALL.len())]
            }
        }

        impl $crate::records::avro::Field for $Name {
            const MIN_BYTES: usize = 1;

            fn size(&self) -> usize {
                $crate::records::avro::long_size(*self as i64)
            }

            fn write(&self, out: &mut Vec<u8>) {
                $crate::records::avro::write_long(out, *self as i64);
            }

            fn read(
                from: &mut $crate::records::avro::Reader<'_>,
            ) -> Result<Self, $crate::records::avro::RecordDecodeError> {
                from.index(Self::ALL.len(), $crate::records::avro::AvroError::Symbol).map(|index| Self::ALL[index])
            }

            fn show(&self, f: &mut std::fmt::Formatter<'_>, _hidden: bool) -> std::fmt::Result {
                std::fmt::Debug::fmt(self, f)
            }
        }
    };
}
