#!/usr/bin/env bash
# grep and find of a release binary against ripgrep and fd, over a tree of 100,000 files that it makes.
# usage: benches/search.sh [BINARY] [ROUNDS] [FILES]     (it needs bash, python3, rg, fd or fdfind, and valgrind for instruction counts)
set -euo pipefail
binary=$(realpath "${1:-target/release/toolgate}")
rounds=${2:-9}
files=${3:-100000}
fd=$(command -v fd || command -v fdfind)
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export HOME=$home

python3 - "$home/tree" "$files" <<'PYTHON'
import os, random, sys
random.seed(7)
root, count = sys.argv[1], int(sys.argv[2])
words = "let fn return if else match struct impl self value result error name path file line read write open close buffer".split()
def text():
    lines = min(400, max(3, int(random.expovariate(1 / 60))))
    return "".join("    " * random.randint(0, 4) + " ".join(random.choices(words, k=random.randint(2, 9))) + "\n" for _ in range(lines))
pool = [text() for _ in range(500)]
made = folder = 0
while made < count:
    place = os.path.join(root, f"package{folder % 40}", f"module{folder // 40 % 25}", f"part{folder // 1000}")
    os.makedirs(place, exist_ok=True)
    for i in range(min(random.randint(5, 45), count - made)):
        needle = f"the needle of {made}\n" if made % 1000 == 500 else ""
        with open(os.path.join(place, f"file{i}.{random.choice(['rs', 'md', 'py', 'txt'])}"), "w") as file:
            file.write(random.choice(pool) + needle)
        made += 1
    folder += 1
with open(os.path.join(root, ".gitignore"), "w") as file:
    file.write("*.log\n/build/\ntarget/\n*.o\n")
PYTHON
cd "$home/tree"

milliseconds() { local start end; start=$(date +%s%N); "$@" >/dev/null || true; end=$(date +%s%N); echo $(((end - start) / 10000)); }
median() { python3 -c 'import statistics, sys; print(statistics.median(map(int, sys.argv[1:])) / 100)' "$@"; }
instructions() {
    if command -v valgrind >/dev/null; then
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 >/dev/null |
            awk '/Collected/ && $NF > most { most = $NF } END { printf "%d million instructions", most / 1e6 }'
    else
        echo "no valgrind here, so no instruction count"
    fi
}

# compare WHAT TOOL ARGUMENTS PEER...
compare() {
    local what=$1 tool=$2 arguments=$3 ours=() peers=()
    shift 3
    for ((i = 0; i < rounds; i++)); do
        # Interleaved, so that a busy moment of the machine meets both.
        peers+=("$(milliseconds "$@")")
        ours+=("$(milliseconds "$binary" call "$tool" "$arguments")")
    done
    local our peer
    our=$(median "${ours[@]}") peer=$(median "${peers[@]}")
    echo "$what: peer $peer ms, toolgate $our ms, ratio $(python3 -c "print(round($our / $peer, 2))") (at most 1.2)"
    echo "    peer $(instructions "$@"), toolgate $(instructions "$binary" call "$tool" "$arguments")"
}

echo "$files files, $("$fd" --version), $(rg --version | sed -n 1p)"
compare "text, $((files / 1000)) matches" grep '{"pattern":"needle of","limit":100000}' rg --hidden --no-config -n 'needle of' .
compare "expression, no match" grep '{"pattern":"\\w+_\\d+ nothing","limit":100000}' rg --hidden --no-config -n '\w+_\d+ nothing' .
compare "either case, a glob" grep '{"pattern":"NEEDLE","ignoreCase":true,"glob":"*.rs"}' rg --hidden --no-config -n -i -g '*.rs' NEEDLE .
compare "names, one in four" find '{"pattern":"*.md","limit":100000}' "$fd" --hidden --glob '*.md' .
compare "names, no match" find '{"pattern":"*.nothing"}' "$fd" --hidden --glob '*.nothing' .

# Memory: large files with matches and lines around them; a flood of matches; lines without end.
cd "$home"
mkdir logs
for i in 1 2 3 4; do seq 1 6000000 | sed 's/^/log line /' >"logs/server$i.log"; done
mkdir flood && yes eeeeeeeeeeeeee | head -c 300000000 >flood/e.txt || true
mkdir long && head -c 300000000 /dev/zero | tr '\0' x >long/x.txt
python3 - "$binary" <<'PYTHON'
import json, os, subprocess, sys
for arguments in [
    {"pattern": "line 5999999", "path": "logs", "context": 2},
    {"pattern": "e", "path": "flood"},
    {"pattern": "e", "path": "flood", "limit": 100000000},
    {"pattern": "yz", "path": "long"},
]:
    child = subprocess.Popen([sys.argv[1], "call", "grep", json.dumps(arguments)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    print(f"{json.dumps(arguments)}: peak memory {used.ru_maxrss / 1024:.1f} MB (at most 64 more than without)")
PYTHON
