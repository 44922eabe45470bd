use std::fmt;

use tuskline_sdk::Failure;

#[derive(Debug)]
enum StoreError {
    Full,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store is full")
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::fatal(error)
    }
}

fn main() {}
