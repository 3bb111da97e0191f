# Run: bash examples/curl.sh
# The model's name, a chat, the same as a stream, and the same in Anthropic's form.
set -euo pipefail

url=${LLM_URL:-http://127.0.0.1:8000}
model=$(curl -fsS "$url/v1/models" | sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
messages='[{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]'

# ask PATH FIELDS: asks the model for an answer of at most 64 tokens.
ask() {
    curl -fsSN "$url$1" -H 'content-type: application/json' \
        -d "{\"model\": \"$model\", \"messages\": $messages, \"temperature\": 0, \"max_tokens\": 64 $2}"
    echo
}

ask /v1/chat/completions ''
ask /v1/chat/completions ', "stream": true'
ask /v1/messages ', "system": "You answer in one sentence."'
