#!/usr/bin/env bash
# Real clients against a real service: starts `baton serve` with the bundled model on a free port, runs the tests of
# this folder with the official openai package, and stops it with Ctrl-C, which must end cleanly. One test starts a
# cluster of processes of its own.
#
#   tests/conformance/run.sh [BATON [ARGUMENT...]]   default: target/release/baton
#
# Arguments after the binary go to `baton serve`, so that the same tests run with other shapes (`--prefill 0`).
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
baton="${1:-$target/release/baton}"
if [ $# -gt 0 ]; then shift; fi
wait_s="${CONFORMANCE_WAIT_S:-120}"

if [ ! -x "$baton" ]; then
    echo "conformance: there is no $baton; build it with: cargo build --release -p baton" >&2
    exit 1
fi

"$root/scripts/install-tools" python
venv="$target/conformance/venv"

log="$target/conformance/serve.log"
# There before anybody looks into it: the shell opens it for the service after it has gone on.
: >"$log"
# Responses of tests are not among those of this user.
export BATON_ROUTER__RESPONSES__STORE="$target/conformance/responses"
BATON_MODEL__PATH="$root/models/tiny-rust" "$baton" serve --listen 127.0.0.1:0 "$@" >"$log" 2>&1 &
server=$!
trap 'kill -KILL "$server" 2>/dev/null || true' EXIT

url="" ops=""
for ((waited_ds = 0; waited_ds < wait_s * 10; waited_ds++)); do
    url="$(sed -n 's/.*listening on \(http:\/\/[0-9.:]*\).*/\1/p' "$log" | head -n 1)"
    ops="$(sed -n 's/^ *ops *http:\/\/\([0-9.:]*\).*/\1/p' "$log" | head -n 1)"
    if [ -n "$url" ] && [ -n "$ops" ]; then break; fi
    if ! kill -0 "$server" 2>/dev/null; then
        echo "conformance: the service ended before it listened:" >&2
        cat "$log" >&2
        exit 1
    fi
    sleep 0.1
done
if [ -z "$url" ] || [ -z "$ops" ]; then
    echo "conformance: the service did not say 'listening on http://...' and 'ops http://...' within $wait_s s:" >&2
    cat "$log" >&2
    exit 1
fi

status=0
BATON_URL="$url" BATON_OPS="$ops" BATON_BINARY="$baton" BATON_TEST_MODEL="$root/models/tiny-rust" \
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m unittest discover --start-directory "$here" --verbose || status=$?

kill -INT "$server"
trap - EXIT
if ! wait "$server"; then
    echo "conformance: the service did not end cleanly on Ctrl-C" >&2
    status=1
fi
if [ "$status" -ne 0 ]; then
    echo "conformance: the log of the service:" >&2
    cat "$log" >&2
fi
exit "$status"
