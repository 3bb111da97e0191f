#!/usr/bin/env bash
# Real clients against a real service. `baton serve` is started on a free port, tested, and stopped with Ctrl-C, which must
# end cleanly: first with the bundled model, for the tests of this folder, then with a real chat model, for those in clients.
#
#   tests/conformance/run.sh [BATON [ARGUMENT...]]   default: target/release/baton
#
# Arguments after the binary go to `baton serve`, so that the same tests run with other shapes (`--prefill 0`).
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
target="$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")"
baton="${1:-$target/release/baton}"
if [ $# -gt 0 ]; then shift; fi
wait_s="${CONFORMANCE_WAIT_S:-120}"

if [ ! -x "$baton" ]; then
    echo "conformance: there is no $baton; build it with: cargo build --release -p baton" >&2
    exit 1
fi

"$root/scripts/install-tools" python
venv="$target/conformance/venv"
export PYTHONDONTWRITEBYTECODE=1
# Responses of tests are not among those of this user.
export BATON_ROUTER__RESPONSES__STORE="$target/conformance/responses"
server="" status=0
trap '[ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true' EXIT

# serve NAME MODEL [ARGUMENT...]: starts a service with the log NAME.log, and sets server, log, url and ops.
serve() {
    log="$target/conformance/$1.log"
    # There before anybody looks into it: the shell opens it for the service after it has gone on.
    : >"$log"
    BATON_MODEL__PATH="$2" "$baton" serve --listen 127.0.0.1:0 "${@:3}" >"$log" 2>&1 &
    server=$!
    url="" ops=""
    for ((waited_ds = 0; waited_ds < wait_s * 10; waited_ds++)); do
        url="$(sed -n 's/.*listening on \(http:\/\/[0-9.:]*\).*/\1/p' "$log" | head -n 1)"
        ops="$(sed -n 's/^ *ops *http:\/\/\([0-9.:]*\).*/\1/p' "$log" | head -n 1)"
        if [ -n "$url" ] && [ -n "$ops" ]; then return; fi
        if ! kill -0 "$server" 2>/dev/null; then
            echo "conformance: the service ended before it listened:" >&2
            cat "$log" >&2
            exit 1
        fi
        sleep 0.1
    done
    echo "conformance: the service did not say 'listening on http://...' and 'ops http://...' within $wait_s s:" >&2
    cat "$log" >&2
    exit 1
}

# passes COMMAND...: runs tests, and says how long they took.
passes() {
    local start=$SECONDS
    "$@" || status=$?
    echo "conformance: $((SECONDS - start)) s"
}

# Stops the service, and prints its log if anything went wrong.
stop() {
    kill -INT "$server"
    wait "$server" || { echo "conformance: the service did not end cleanly on Ctrl-C" >&2; status=1; }
    server=""
    [ "$status" = 0 ] || { echo "conformance: the log of the service:" >&2; cat "$log" >&2; exit "$status"; }
}

serve serve "$root/models/tiny-rust" "$@"
BATON_URL="$url" BATON_OPS="$ops" BATON_BINARY="$baton" BATON_TEST_MODEL="$root/models/tiny-rust" \
    passes "$venv/bin/python" -m unittest discover --start-directory "$here" --verbose
stop

chat_model="$(cd "$root" && scripts/fetch-model)"
case "$chat_model" in
    *.gguf) ;;
    *)
        echo "skipped: the chat model cannot be fetched, so Anthropic's, LangChain's, LiteLLM's and Node's clients are not tested"
        exit 0
        ;;
esac
# What install-tools ends with where a download fails.
no_network=75
code=0
"$root/scripts/install-tools" clients || code=$?
case "$code" in
    0) export CLIENTS="$target/conformance/node" ;;
    "$no_network") echo "skipped: Node or its packages cannot be installed, so OpenAI's client for Node and the AI SDK are not tested" ;;
    *) exit "$code" ;;
esac

taught="$target/conformance/chat.gguf"
"$venv/bin/python" "$here/clients/teach_tools.py" "$(cd "$root" && realpath "$chat_model")" "$taught"
serve clients "$taught" "$@"
export LLM_URL="$url"
passes "$venv/bin/python" -m unittest discover --start-directory "$here/clients" --verbose
if [ -n "${CLIENTS:-}" ]; then
    passes node --test --test-reporter=spec "$here"/clients/*.test.mjs
fi
stop
