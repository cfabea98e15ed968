#!/usr/bin/env bash
# Whole-program figures of a release binary: 1 GB of command output against the same pipe into `cat`, and what `--version` costs.
# usage: benches/whole.sh [BINARY] [ROUNDS]     (it needs bash, python3 for the medians, and valgrind for instruction counts if there)
set -euo pipefail
binary=$(realpath "${1:-target/release/toolgate}")
rounds=${2:-7}
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
pipe='yes 0123456789abcdef0123456789abcdef | head -c 1000000000'
printf -v call '{"cmd":"%s"}' "$pipe"

seconds() { local start end; start=$(date +%s%N); "$@" >/dev/null; end=$(date +%s%N); echo $(((end - start) / 1000000)); }
median() { python3 -c 'import statistics, sys; print(int(statistics.median(map(int, sys.argv[1:]))))' "$@"; }

cat_ms=() ours_ms=()
for ((i = 0; i < rounds; i++)); do
    # Interleaved, so that a busy moment of the machine meets both.
    cat_ms+=("$(seconds bash -c "$pipe | cat")")
    ours_ms+=("$(HOME=$home seconds "$binary" call exec_command "$call")")
done
cat_median=$(median "${cat_ms[@]}")
ours_median=$(median "${ours_ms[@]}")
echo "1 GB of output: cat $cat_median ms, toolgate $ours_median ms, speed ratio $(python3 -c "print(round($cat_median / $ours_median, 2))") (at least 0.8)"

HOME=$home python3 - "$binary" "$call" <<'PYTHON'
import resource, subprocess, sys
subprocess.run([sys.argv[1], "call", "exec_command", sys.argv[2]], stdout=subprocess.DEVNULL)
print(f"peak memory with it: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.1f} MB (at most 32)")
PYTHON

if command -v valgrind >/dev/null; then
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" --version 2>&1 | grep Collected | sed 's/.*Collected/--version, instructions/'
else
    echo "--version: no valgrind here, so no instruction count"
fi
