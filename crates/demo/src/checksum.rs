//! SHA-256 of a file, as the lambda computes it and as the independent pass does again.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Read buffer, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Checksum of a file in hexadecimal, and its size in bytes. `keep_on` is asked between reads.
pub(super) fn of_file(path: &Path, keep_on: impl Fn() -> bool) -> std::io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        if !keep_on() {
            return Err(std::io::Error::other("told to stop"));
        }
        digest.update(&buffer[..read]);
        bytes += read as u64;
    }
    let mut text = String::with_capacity(64);
    for byte in digest.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok((text, bytes))
}
