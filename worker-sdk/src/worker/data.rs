//! Values that the lambdas of a worker share: pools, HTTP clients, configuration.
//!
//! Promises: a missing value is found when the worker is built. Must never: be found missing by the first
//! task at night.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Code, Error};

/// A value of the worker, as an argument of a lambda.
///
/// Given once with [`WorkerBuilder::data`](crate::WorkerBuilder::data). One value per type; wrap two of one
/// type in types of your own. It is shared, not cloned.
#[derive(Debug)]
pub struct Data<T>(Arc<T>);

impl<T> Clone for Data<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Data<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Values by their type.
#[derive(Debug, Clone, Default)]
pub struct DataMap(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl DataMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Result<Data<T>, Error> {
        let value = self.0.get(&TypeId::of::<T>()).cloned();
        let value = value.and_then(|value| value.downcast::<T>().ok());
        value.map(Data).ok_or_else(|| {
            let text =
                format!("a lambda needs Data<{}>, and the worker has none", type_name::<T>());
            let hint = "give it with WorkerBuilder::data before build or run";
            Error::refused(Code::InvalidSetting, text).hinting(hint)
        })
    }
}
