//! Setters of a value that is put together, a line for each.

/// `name(value: Type) = expression;` sets the field `name`, `name(value: Type) in field = expression;`
/// another one. Each returns the value. The type of the value says that it must be used.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($($value:ident: $kind:ty)?) $(in $($field:ident).+)? = $set:expr;)*) => { $(
        $(#[$doc])*
        pub fn $name(mut self, $($value: $kind)?) -> Self {
            setters!(@set self $name [$($($field).+)?] $set);
            self
        }
    )* };
    (@set $value:ident $name:ident [] $set:expr) => { $value.$name = $set };
    (@set $value:ident $name:ident [$($field:ident).+] $set:expr) => { $value.$($field).+ = $set };
}
pub(crate) use setters;
