//! The `tuskline` binary: the server and its command line. Everything is in the library.

fn main() -> std::process::ExitCode {
    tuskline::cli::main()
}
