"""LiteLLM, over OpenAI's API and over Anthropic's."""

import json
import os
import warnings

# The prices of models are read from the package, not from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

from served import FILE_QUESTION, MESSAGES, PARIS, PATIENCE_S, READ_FILE, TOKENS_MAX, URL, Case

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

    def each(self, check, **more):
        """Checks an answer for each way."""
        common = {
            "api_key": "unused", "messages": MESSAGES, "temperature": 0, "max_tokens": TOKENS_MAX, "max_retries": 0,
            "timeout": PATIENCE_S,
        }
        for name, way in self.ways().items():
            with self.subTest(way=name):
                check(litellm.completion(**{**common, **way, **more}))

    def test_whole(self):
        def check(answer):
            choice = answer.choices[0]
            self.assertEqual((choice.message.content, choice.finish_reason), (PARIS, "stop"))
            self.assertGreater(answer.usage.prompt_tokens, 0)

        self.each(check)

    def test_streams(self):
        def check(answer):
            chunks = list(answer)
            self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), PARIS)
            self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason], ["stop"])

        self.each(check, stream=True)

    def test_a_tool_is_called(self):
        def check(answer):
            choice = answer.choices[0]
            (call,) = choice.message.tool_calls
            self.assertEqual((choice.finish_reason, call.function.name), ("tool_calls", "read_file"))
            self.assertEqual(json.loads(call.function.arguments), {"path": "notes.txt"})

        self.each(check, messages=[{"role": "user", "content": FILE_QUESTION}], tools=[TOOL])

    def test_an_unknown_model_is_not_found(self):
        for name, way in self.ways().items():
            with self.subTest(way=name), self.assertRaises(litellm.NotFoundError):
                unknown = way | {"model": way["model"].replace(self.model, "gpt-4")}
                litellm.completion(**unknown, api_key="unused", messages=MESSAGES, max_tokens=1, max_retries=0)
