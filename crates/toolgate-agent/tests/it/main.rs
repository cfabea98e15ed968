//! The agent's integration tests, in one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

/// One pixel, as a PNG in base64.
macro_rules! pixel {
    () => {
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg=="
    };
}

mod addresses;
mod examples;
mod histories;
mod hooks;
mod images;
mod provider;
mod recordings;
mod replay;
mod requests;
mod sent_images;
mod session;
mod switch;
mod wires;
