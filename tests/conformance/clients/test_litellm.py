"""LiteLLM, over OpenAI's API and over Anthropic's."""

import json
import os
import warnings

# The prices of models are read from the package, not from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

from served import FILE_QUESTION, FILE_TEXT, MESSAGES, PARIS, PATIENCE_S, READ_FILE, TOKENS_MAX, URL, Case

TOOL = {"type": "function", "function": READ_FILE}


class LiteLlm(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        litellm.suppress_debug_info = True
        # About types of its own.
        warnings.filterwarnings("ignore", module="pydantic")

    def ways(self):
        """Returns what names the service, by the API that LiteLLM is to speak."""
        return {
            "openai": {"model": f"openai/{self.model}", "api_base": URL + "/v1"},
            "hosted_vllm": {"model": f"hosted_vllm/{self.model}", "api_base": URL + "/v1"},
            "anthropic": {"model": f"anthropic/{self.model}", "api_base": URL},
        }

    def ask(self, way, **more):
        common = {
            "api_key": "unused", "messages": MESSAGES, "temperature": 0, "max_tokens": TOKENS_MAX, "max_retries": 0,
            "timeout": PATIENCE_S,
        }
        return litellm.completion(**{**common, **way, **more})

    def each(self, check):
        """Checks each way."""
        for name, way in self.ways().items():
            with self.subTest(way=name):
                check(way)

    def test_whole(self):
        def check(way):
            answer = self.ask(way)
            choice = answer.choices[0]
            self.assertEqual((choice.message.content, choice.finish_reason), (PARIS, "stop"))
            self.assertGreater(answer.usage.prompt_tokens, 0)

        self.each(check)

    def test_streams(self):
        def check(way):
            chunks = list(self.ask(way, stream=True))
            self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), PARIS)
            self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason], ["stop"])

        self.each(check)

    def test_a_tool_is_called_and_answered(self):
        asked = [{"role": "user", "content": FILE_QUESTION}]

        def check(way):
            called = self.ask(way, messages=asked, tools=[TOOL]).choices[0]
            (call,) = called.message.tool_calls
            self.assertEqual((called.finish_reason, call.function.name), ("tool_calls", "read_file"))
            self.assertEqual(json.loads(call.function.arguments), {"path": "notes.txt"})
            chunks = list(self.ask(way, messages=asked, tools=[TOOL], stream=True))
            (streamed,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
            self.assertEqual(streamed.function, call.function)
            result = {"role": "tool", "tool_call_id": call.id, "content": FILE_TEXT}
            answer = self.ask(way, messages=[*asked, called.message, result], tools=[TOOL])
            self.assertIn(FILE_TEXT, answer.choices[0].message.content)

        self.each(check)

    def test_errors_have_its_classes(self):
        def check(way):
            with self.assertRaises(litellm.ContextWindowExceededError):
                self.ask(way, max_tokens=10_000_000)
            with self.assertRaises(litellm.BadRequestError):
                self.ask(way, temperature=5)
            with self.assertRaises(litellm.NotFoundError):
                self.ask(way, model=way["model"].replace(self.model, "gpt-4"))

        self.each(check)
