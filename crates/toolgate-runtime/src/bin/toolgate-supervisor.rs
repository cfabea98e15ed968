//! The supervisor as a program of its own, for tests and for embedders that do not re-execute their binary.

fn main() {
    toolgate_runtime::process::host::supervise()
}
