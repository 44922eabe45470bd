//! Files of archived tasks: JSON lines, a task a line.
//!
//! Promises: what is here under a name without a dot is whole, but for the last line of a file that is
//! still being added to; it is on the disk when the call returns, directory entry and all; nothing is
//! ever overwritten. Must never: delete a file that it did not begin itself.
//!
//! `erasure` is the one exception: it takes the tasks of an erased customer out again.
//!
//! A task may be here twice, after a crash between the writing and the deletion: ids tell.

mod directory;
mod erasure;

pub use directory::{Directory, Error};
pub use erasure::Erasure;
