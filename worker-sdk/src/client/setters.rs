//! Setters of a value that is put together, a line for each.

/// `name(value: Type) = Some(value);` sets the field `name` and returns the value.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($value:ident: $kind:ty) = $set:expr;)*) => { $(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $value: $kind) -> Self {
            self.$name = $set;
            self
        }
    )* };
}
pub(crate) use setters;
