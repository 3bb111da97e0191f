"""OpenAI's Responses API with the official client: whole, streaming, kept, gone on from, and with tools."""

import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import openai
from test_admin_cluster import Process
from test_openai import PATIENCE_S, Case

QUESTION = "What is ownership?"
# Longer than a page of items.
MANY = 25
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
# A template that shows tools, calls and what they return.
TEMPLATE = (
    "<|bos|>{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "{{ '<|assistant|>' if m.role == 'assistant' else '<|user|>' }}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def check_model(value):
    """Fails unless all that the client's type asks for is there: the client itself is lenient."""
    type(value).model_validate(value.model_dump(mode="json", warnings="error"), strict=False)
    return value


class Responses(Case):
    def ask(self, **more):
        arguments = {"model": self.model, "input": QUESTION, "max_output_tokens": 16, "temperature": 0, **more}
        return self.client.responses.create(**arguments)

    def refused(self, kind, **more):
        with self.assertRaises(kind) as caught:
            self.ask(**more)
        return caught.exception

    def test_whole_says_what_a_chat_says(self):
        response = check_model(self.ask(metadata={"a": "b"}))
        self.assertEqual((response.object, response.model, response.store), ("response", self.model, True))
        self.assertIn(response.status, ("completed", "incomplete"))
        self.assertEqual(response.metadata, {"a": "b"})
        chat = self.chat(messages=[{"role": "user", "content": QUESTION}])
        self.assertEqual(response.output_text, chat.choices[0].message.content)
        usage = response.usage
        self.assertEqual(usage.input_tokens, chat.usage.prompt_tokens)
        self.assertEqual(usage.output_tokens, chat.usage.completion_tokens)
        self.assertEqual(usage.total_tokens, usage.input_tokens + usage.output_tokens)
        self.assertTrue(0 <= usage.input_tokens_details.cached_tokens <= usage.input_tokens)
        self.assertEqual(usage.output_tokens_details.reasoning_tokens, 0)

    def test_a_stream_has_every_event_and_ends_with_what_is_kept(self):
        whole = self.ask()
        events = [check_model(event) for event in self.ask(stream=True)]
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        kinds = [event.type.removeprefix("response.") for event in events]
        self.assertEqual(kinds[:4], ["created", "in_progress", "output_item.added", "content_part.added"])
        self.assertEqual(set(kinds[4:-4]), {"output_text.delta"})
        self.assertEqual(kinds[-4:-1], ["output_text.done", "content_part.done", "output_item.done"])
        self.assertEqual(kinds[-1], whole.status)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual((text, events[-1].response.output_text), (whole.output_text, whole.output_text))
        self.assertEqual(self.client.responses.retrieve(events[0].response.id), events[-1].response)

    def test_the_helper_of_streams_follows(self):
        arguments = {"model": self.model, "input": QUESTION, "max_output_tokens": 16, "temperature": 0}
        with self.client.responses.stream(**arguments) as stream:
            events = list(stream)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(events[-1].response.output_text, text)

    def test_a_cut_answer_is_incomplete(self):
        response = self.ask(max_output_tokens=1)
        self.assertEqual((response.status, response.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def test_a_response_goes_on_from_another(self):
        first = self.ask()
        second = self.ask(previous_response_id=first.id, input="And a trait?")
        self.assertEqual(second.previous_response_id, first.id)
        turns = [("user", QUESTION), ("assistant", first.output_text), ("user", "And a trait?")]
        chat = self.chat(messages=[{"role": role, "content": text} for role, text in turns])
        self.assertEqual(second.output_text, chat.choices[0].message.content)
        # The client may send the items again instead.
        again = self.ask(input=[{"role": "user", "content": QUESTION}, *first.output,
                                {"role": "user", "content": "And a trait?"}])
        self.assertEqual(again.output_text, second.output_text)
        self.client.responses.delete(first.id)
        error = self.refused(openai.BadRequestError, previous_response_id=first.id)
        self.assertEqual((error.code, error.param), ("previous_response_not_found", "previous_response_id"))
        self.ask(previous_response_id=second.id)

    def test_get_and_delete(self):
        response = self.ask()
        self.assertEqual(self.client.responses.retrieve(response.id), response)
        self.client.responses.delete(response.id)
        for call in (self.client.responses.retrieve, self.client.responses.delete, self.client.responses.cancel):
            with self.assertRaises(openai.NotFoundError):
                call(response.id)
        unkept = self.ask(store=False)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(unkept.id)

    def test_only_one_in_the_background_can_be_cancelled(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.cancel(self.ask().id)
        self.assertIn("synchronous", str(caught.exception))
        self.assertEqual(self.refused(openai.BadRequestError, background=True).param, "background")

    def test_input_items_come_in_pages(self):
        items = [{"role": "user", "content": f"{at}"} for at in range(MANY)]
        response = self.ask(input=items)
        texts = [str(at) for at in range(MANY)]
        for order, expected in (("asc", texts), ("desc", texts[::-1])):
            for limit in (7, 20, 100):
                items = self.client.responses.input_items.list(response.id, limit=limit, order=order)
                self.assertEqual([check_model(item).content[0].text for item in items], expected)

    def test_logprobs(self):
        response = self.ask(include=["message.output_text.logprobs"], top_logprobs=2)
        logprobs = response.output[0].content[0].logprobs
        self.assertGreaterEqual(len(logprobs), 1)
        self.assertTrue(all(len(entry.top_logprobs) == 2 for entry in logprobs))

    def test_what_is_not_there_is_refused_by_name(self):
        bad = openai.BadRequestError
        schema = {"type": "json_schema", "name": "a", "schema": {"type": "array", "uniqueItems": True}}
        for param, more in (
            ("conversation", {"conversation": "conv_1"}),
            ("text.format.schema", {"text": {"format": schema}}),
            ("text.format.type", {"text": {"format": {"type": "yaml"}}}),
            ("tools[0].type", {"tools": [{"type": "web_search"}]}),
            ("tools", {"tools": [TOOL], "tool_choice": "required"}),
            ("tools", {"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}}),
            ("truncation", {"truncation": "some"}),
            ("colour", {"extra_body": {"colour": "red"}}),
        ):
            self.assertEqual(self.refused(bad, **more).param, param)


class Tools(unittest.TestCase):
    """On a service of its own, whose template shows tools."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="baton-conformance-")
        model = Path(cls.folder.name) / "telling"
        shutil.copytree(os.environ["BATON_TEST_MODEL"], model)
        (model / "chat_template.jinja").write_text(TEMPLATE)
        arguments = [f"model.path={model}", "router.tool_parser=hermes", "router.ops_listen=",
                     f"router.responses.store={cls.folder.name}/responses"]
        arguments = [part for argument in arguments for part in ("--set", argument)]
        cls.process = Process(cls.folder.name, "tools", "serve", "--listen", "127.0.0.1:0", *arguments)
        try:
            url = cls.process.says(r"listening on (http://[0-9.]+:[0-9]+)")
        except BaseException:
            cls.process.child.kill()
            raise
        cls.client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.process.end()
        cls.folder.cleanup()
        assert code == 0, code

    def ask(self, **more):
        arguments = {"model": "telling", "input": QUESTION, "max_output_tokens": 4, "temperature": 0, **more}
        return check_model(self.client.responses.create(**arguments))

    def test_tools_are_in_the_prompt_unless_none_may_be_called(self):
        plain, told = self.ask(), self.ask(tools=[TOOL])
        self.assertGreater(told.usage.input_tokens, plain.usage.input_tokens)
        self.assertEqual(told.tools[0].model_dump(exclude_unset=True), TOOL)
        none = self.ask(tools=[TOOL], tool_choice="none")
        self.assertEqual((none.usage.input_tokens, none.tool_choice), (plain.usage.input_tokens, "none"))

    def test_calls_and_what_they_return_are_kept(self):
        call = {"type": "function_call", "call_id": "call_1", "name": "weather",
                "arguments": json.dumps({"city": "Paris"})}
        output = {"type": "function_call_output", "call_id": "call_1", "output": "Sunny"}
        asked = self.ask(tools=[TOOL], input=[{"role": "user", "content": "Paris?"}, call])
        answered = self.ask(tools=[TOOL], input=[output], previous_response_id=asked.id)
        self.assertGreater(answered.usage.input_tokens, asked.usage.input_tokens)
        items = list(self.client.responses.input_items.list(answered.id, order="asc"))
        kinds = ["message", "function_call", "message", "function_call_output"]
        self.assertEqual([check_model(item).type for item in items], kinds)
        self.assertEqual((items[1].arguments, items[3].output), (call["arguments"], "Sunny"))


if __name__ == "__main__":
    unittest.main()
