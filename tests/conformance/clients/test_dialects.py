"""The same messages say the same through every API: greedy, with the same limit."""

import json

from served import FILE_QUESTION, MESSAGES, READ_FILE, TOKENS_MAX, Case, call

SYSTEM = "You answer as short as you can."
LIMITS = {"temperature": 0, "max_tokens": TOKENS_MAX}
# A question, several turns, text that is not ASCII, and an answer that the limit cuts.
CHATS = [
    MESSAGES,
    [
        {"role": "user", "content": "Name three fruits."},
        {"role": "assistant", "content": "Apple, pear, plum."},
        {"role": "user", "content": "And three vegetables?"},
    ],
    [{"role": "user", "content": "Was heißt „grün“ auf Englisch? 日本語 🦀"}],
    [{"role": "user", "content": "Tell me a long story about a dragon."}],
]


class Dialects(Case):
    def chat(self, messages):
        body = {"model": self.model, "messages": [{"role": "system", "content": SYSTEM}, *messages], **LIMITS}
        answer = call("/v1/chat/completions", body)
        choice, usage = answer["choices"][0], answer["usage"]
        ends = {"stop": "end_turn", "length": "max_tokens"}
        end = ends[choice["finish_reason"]]
        return choice["message"]["content"], end, usage["prompt_tokens"], usage["completion_tokens"]

    def message(self, messages):
        answer = call("/v1/messages", {"model": self.model, "messages": messages, "system": SYSTEM, **LIMITS})
        (block,), usage = answer["content"], answer["usage"]
        taken = usage["input_tokens"] + usage["cache_read_input_tokens"]
        return block["text"], answer["stop_reason"], taken, usage["output_tokens"]

    def completion(self, messages):
        """Renders the prompt by /tokenize, and completes its text."""
        told = [{"role": "system", "content": SYSTEM}, *messages]
        tokens = call("/tokenize", {"messages": told, "add_generation_prompt": True})["tokens"]
        prompt = call("/detokenize", {"tokens": tokens})["prompt"]
        answer = call("/v1/completions", {"model": self.model, "prompt": prompt, **LIMITS})
        choice, usage = answer["choices"][0], answer["usage"]
        ends = {"stop": "end_turn", "length": "max_tokens"}
        return choice["text"], ends[choice["finish_reason"]], usage["prompt_tokens"], usage["completion_tokens"]

    def test_the_same_text_reason_and_tokens(self):
        for messages in CHATS:
            with self.subTest(messages=messages):
                said = self.chat(messages)
                self.assertTrue(said[0])
                self.assertEqual(self.message(messages), said)
                self.assertEqual(self.completion(messages), said)

    def test_the_chats_end_in_both_ways(self):
        self.assertEqual({self.chat(messages)[1] for messages in CHATS}, {"end_turn", "max_tokens"})

    def test_the_same_call_of_a_tool(self):
        asked = {"model": self.model, "messages": [{"role": "user", "content": FILE_QUESTION}], **LIMITS}
        chat = call("/v1/chat/completions", {**asked, "tools": [{"type": "function", "function": READ_FILE}]})
        tool = {"name": "read_file", "description": READ_FILE["description"], "input_schema": READ_FILE["parameters"]}
        message = call("/v1/messages", {**asked, "tools": [tool]})
        (called,) = chat["choices"][0]["message"]["tool_calls"]
        (used,) = message["content"]
        self.assertEqual(called["function"]["name"], used["name"])
        self.assertEqual(json.loads(called["function"]["arguments"]), used["input"])
        taken = message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"]
        self.assertEqual(chat["usage"]["prompt_tokens"], taken)
