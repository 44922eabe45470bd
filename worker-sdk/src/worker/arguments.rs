//! The arguments of a lambda behind its payload: a closed list, so that the compiler can say what is wrong.

use crate::error::Error;
use crate::worker::context::Context;
use crate::worker::data::{Data, DataMap};

/// An argument that a lambda may take beside its payload: [`Context`] and [`Data`].
#[diagnostic::on_unimplemented(
    message = "a lambda cannot take `{Self}` as an argument",
    label = "neither the payload nor a value that the worker can give",
    note = "give a value with `.data(value)` and take it as `Data<{Self}>`"
)]
pub trait FromContext: sealed::Sealed + Sized + Send + 'static {
    #[doc(hidden)]
    fn from_context(context: &Context) -> Result<Self, Error>;

    #[doc(hidden)]
    fn check(_data: &DataMap) -> Result<(), Error> {
        Ok(())
    }
}

impl FromContext for Context {
    fn from_context(context: &Context) -> Result<Self, Error> {
        Ok(context.clone())
    }
}

impl<T: Send + Sync + 'static> FromContext for Data<T> {
    fn from_context(context: &Context) -> Result<Self, Error> {
        context.inner.data.get()
    }

    fn check(data: &DataMap) -> Result<(), Error> {
        data.get::<T>().map(drop)
    }
}

/// Up to four arguments, each [`FromContext`].
pub trait Arguments: sealed::Sealed + Sized + Send + 'static {
    #[doc(hidden)]
    fn extract(context: &Context) -> Result<Self, Error>;

    #[doc(hidden)]
    fn check(data: &DataMap) -> Result<(), Error>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::Context {}
    impl<T> Sealed for crate::Data<T> {}
}

macro_rules! tuples {
    ($(($($argument:ident),*))*) => { $(
        impl<$($argument: FromContext),*> sealed::Sealed for ($($argument,)*) {}

        #[allow(unused_variables, reason = "without arguments there is nothing to take")]
        impl<$($argument: FromContext),*> Arguments for ($($argument,)*) {
            fn extract(context: &Context) -> Result<Self, Error> {
                Ok(($($argument::from_context(context)?,)*))
            }

            fn check(data: &DataMap) -> Result<(), Error> {
                $($argument::check(data)?;)*
                Ok(())
            }
        }
    )* };
}

tuples! { () (A) (A, B) (A, B, C) (A, B, C, D) }
