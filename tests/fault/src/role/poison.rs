//! The ways in which a body takes its worker with it.

use rustix::process::{Resource, Rlimit, setrlimit};

/// By abort, exit, want of memory or a stack that overflows, in turn.
pub(super) fn die(op: u64) -> ! {
    match op % 4 {
        0 => std::process::abort(),
        1 => std::process::exit(1),
        2 => run_out_of_memory(),
        _ => {
            overflow(op);
            std::process::abort()
        }
    }
}

/// Takes all memory that it is allowed, which is little from here on.
pub(super) fn run_out_of_memory() -> ! {
    let none = Rlimit { current: Some(1), maximum: Some(1) };
    // Without the limit the machine's memory would be taken: then it is an abort.
    if setrlimit(Resource::As, none).is_err() {
        std::process::abort();
    }
    loop {
        std::mem::forget(std::hint::black_box(vec![1_u8; 1 << 20]));
    }
}

/// Calls itself until the guard page below the stack.
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    match std::hint::black_box(depth) {
        u64::MAX => frame[0],
        _ => overflow(depth.wrapping_add(1)) ^ frame[511],
    }
}
