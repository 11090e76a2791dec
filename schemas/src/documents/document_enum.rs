//! Macro for enums in documents.

/// Declares a [`string_enum!`](crate::string_enum) that is read from documents. Its `Deserialize` is derived: the error
/// for an unknown string repeats it and names the nearest variant, because the author of the document reads it.
macro_rules! document_enum {
    ($(#[$meta:meta])* pub enum $Name:ident {
        $($(#[$about:meta])* $Variant:ident = $text:literal,)+
    }) => {
        $crate::string_enum! {
            @names
            $(#[$meta])*
            #[derive(::serde::Deserialize)]
            pub enum $Name {
                $($(#[$about])* #[serde(rename = $text)] $Variant = $text,)+
            }
        }
    };
}
