#!/usr/bin/env bash
# Throws changed examples at everything that reads bytes of others, at each for so many seconds, from another seed each time.
#
#   scripts/fuzz.sh SECONDS [TARGET]       TARGET: one of the list at the top of crates/toolgate-runtime/tests/it/fuzz.rs; all without it
#
# FUZZ_SEED=NUMBER goes over the inputs of an earlier time again. Nothing is fetched; the loop is part of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

export FUZZ_SECONDS="${1:?usage: scripts/fuzz.sh SECONDS [TARGET]}" FUZZ_TARGET="${2:-}"
cargo test --release -p toolgate-runtime --test it -- --ignored --exact fuzz::fuzz_for_a_while --nocapture
