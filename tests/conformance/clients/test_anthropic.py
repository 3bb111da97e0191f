"""Anthropic's client: messages whole and as streams, tools, counting, and errors in its own classes."""

import anthropic
from anthropic import Anthropic

from served import CAPITAL, FILE_QUESTION, FILE_TEXT, MESSAGES, PARIS, PATIENCE_S, READ_FILE, TOKENS_MAX, URL, Case

TOOL = {"name": READ_FILE["name"], "description": READ_FILE["description"], "input_schema": READ_FILE["parameters"]}
ASKED = [{"role": "user", "content": FILE_QUESTION}]


class Messages(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # No retries: a refusal is to be seen, not to be smoothed over.
        cls.client = Anthropic(base_url=URL, api_key="unused", max_retries=0, timeout=PATIENCE_S)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def arguments(self, **more):
        asked = {"model": self.model, "messages": MESSAGES, "max_tokens": TOKENS_MAX}
        return {**asked, "extra_body": {"temperature": 0}, **more}

    def ask(self, **more):
        return self.client.messages.create(**self.arguments(**more))

    def stream(self, **more):
        """Returns the message that a stream makes, and its text as it came."""
        with self.client.messages.stream(**self.arguments(**more)) as stream:
            text = "".join(stream.text_stream)
            return stream.get_final_message(), text

    def check_same(self, whole, streamed):
        self.assertEqual(streamed.stop_reason, whole.stop_reason)
        self.assertEqual(streamed.stop_sequence, whole.stop_sequence)
        self.assertEqual(streamed.usage.output_tokens, whole.usage.output_tokens)

        def said(message):
            # Each call has an id of its own.
            return [block.to_dict() | ({"id": None} if block.type == "tool_use" else {}) for block in message.content]

        self.assertEqual(said(streamed), said(whole))


class Whole(Messages):
    def test_a_message(self):
        answer = self.ask()
        self.assertEqual((answer.type, answer.role, answer.model), ("message", "assistant", self.model))
        self.assertEqual([(block.type, block.text) for block in answer.content], [("text", PARIS)])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("end_turn", None))
        self.assertTrue(answer.id.startswith("msg_") and answer._request_id)

    def test_the_end_of_the_tokens(self):
        answer = self.ask(max_tokens=3)
        self.assertEqual((answer.stop_reason, answer.usage.output_tokens), ("max_tokens", 3))

    def test_a_stop_sequence_is_told(self):
        answer = self.ask(stop_sequences=["nowhere", " is"])
        self.assertEqual(answer.content[0].text, PARIS[: PARIS.index(" is")])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", " is"))

    def test_the_system_is_a_text_or_blocks(self):
        def said(system):
            answer = self.ask(system=system)
            return answer.content[0].text, answer.usage.input_tokens + answer.usage.cache_read_input_tokens

        pirate = "You are a pirate. You answer in one word."
        blocks = [
            {"type": "text", "text": pirate[:17]},
            {"type": "text", "text": pirate[17:], "cache_control": {"type": "ephemeral"}},
        ]
        self.assertEqual(said(blocks), said(pirate))
        self.assertNotEqual(said(pirate)[1], said("You are a king.")[1], "the system is part of the prompt")

    def test_a_begun_answer_goes_on(self):
        begun = [*MESSAGES, {"role": "assistant", "content": "The capital of France is"}]
        self.assertEqual(self.ask(messages=begun).content[0].text, " Paris.")

    def test_a_prompt_that_came_before_is_cached(self):
        long = [{"role": "user", "content": CAPITAL * 20}]
        first, second = (self.ask(messages=long, max_tokens=1).usage for _ in range(2))
        self.assertGreater(second.cache_read_input_tokens, 0)
        self.assertEqual(
            second.input_tokens + second.cache_read_input_tokens, first.input_tokens + first.cache_read_input_tokens
        )


class Streams(Messages):
    def test_a_stream_says_the_same(self):
        for more in ({}, {"max_tokens": 3}, {"stop_sequences": [" is"]}, {"system": "You are a pirate."}):
            with self.subTest(**more):
                whole, (streamed, text) = self.ask(**more), self.stream(**more)
                self.check_same(whole, streamed)
                self.assertEqual(text, whole.content[0].text)

    def test_the_order_of_events(self):
        kinds = [event.type for event in self.ask(stream=True)]
        deltas = [kind for kind in kinds if kind == "content_block_delta"]
        self.assertTrue(deltas)
        begin, end = ["message_start", "content_block_start"], ["content_block_stop", "message_delta", "message_stop"]
        self.assertEqual([kind for kind in kinds if kind != "ping"], begin + deltas + end)

    def test_a_dropped_stream_harms_no_other(self):
        with self.client.messages.stream(**self.arguments(max_tokens=400)) as stream:
            next(iter(stream))
        self.assertEqual(self.ask().content[0].text, PARIS)


class Tools(Messages):
    def test_a_call_and_its_result(self):
        called = self.ask(messages=ASKED, tools=[TOOL])
        self.assertEqual(called.stop_reason, "tool_use")
        (use,) = [block for block in called.content if block.type == "tool_use"]
        self.assertEqual((use.name, use.input), ("read_file", {"path": "notes.txt"}))
        # As agents do it: what came goes back as it came.
        result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": FILE_TEXT}]}
        history = [*ASKED, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
        answer = self.ask(messages=history, tools=[TOOL])
        self.assertEqual(answer.stop_reason, "end_turn")
        self.assertIn(FILE_TEXT, answer.content[0].text)

    def test_the_runner_of_tools(self):
        paths = []

        @anthropic.beta_tool
        def read_file(path: str) -> str:
            """Returns the text of a file.

            Args:
                path: Which file.
            """
            paths.append(path)
            return FILE_TEXT

        # Without it, the runner leaves the history to the service, which Baton does not keep.
        told = self.arguments(messages=ASKED, tools=[read_file], thread=False)
        answer = self.client.beta.messages.tool_runner(**told).until_done()
        self.assertIn(FILE_TEXT, answer.content[0].text)
        self.assertEqual(paths, ["notes.txt"])

    def test_a_stream_calls_the_same(self):
        whole, (streamed, _) = self.ask(messages=ASKED, tools=[TOOL]), self.stream(messages=ASKED, tools=[TOOL])
        self.check_same(whole, streamed)

    def test_a_result_that_is_an_error_is_part_of_the_prompt(self):
        use = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "notes.txt"}}

        def tokens(**more):
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "gone", **more}
            history = [*ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
            return self.client.messages.count_tokens(model=self.model, messages=history, tools=[TOOL]).input_tokens

        self.assertGreater(tokens(is_error=True), tokens())

    def test_no_call_where_none_is_allowed(self):
        answer = self.ask(messages=ASKED, tools=[TOOL], tool_choice={"type": "none"})
        self.assertEqual([block.type for block in answer.content], ["text"])


class Models(Messages):
    def test_the_list_has_the_model(self):
        self.assertEqual([model.id for model in self.client.models.list()], [self.model])
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)

    def test_an_unknown_one_is_not_found(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.client.models.retrieve("claude")


class Counts(Messages):
    def count(self, **more):
        return self.client.messages.count_tokens(model=self.model, **{"messages": MESSAGES, **more}).input_tokens

    def test_a_count_is_what_a_message_takes(self):
        for more in ({}, {"system": "You are a pirate."}, {"messages": ASKED, "tools": [TOOL]}):
            with self.subTest(**more):
                usage = self.ask(**more, max_tokens=1).usage
                self.assertEqual(self.count(**more), usage.input_tokens + usage.cache_read_input_tokens)


class Errors(Messages):
    def check(self, kind, name, says, **more):
        with self.assertRaises(kind) as caught:
            self.ask(**more)
        body = caught.exception.body
        self.assertEqual((body["type"], body["error"]["type"]), ("error", name))
        self.assertIn(says, body["error"]["message"])
        self.assertEqual(body["request_id"], caught.exception.request_id)

    def test_classes_of_the_client(self):
        bad = anthropic.BadRequestError
        self.check(anthropic.NotFoundError, "not_found_error", self.model, model="claude")
        self.check(bad, "invalid_request_error", "max_tokens", max_tokens=0)
        self.check(bad, "invalid_request_error", "messages", messages=[])
        self.check(bad, "invalid_request_error", "temperature", extra_body={"temperature": 2})
        self.check(bad, "invalid_request_error", "colour", extra_body={"colour": "red"})
        self.check(bad, "invalid_request_error", "tools[0]", tools=[{"name": "no name", "input_schema": {}}])
        self.check(bad, "invalid_request_error", "messages[0].content[0]", messages=[
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://a.b/c.png"}}]},
        ])

    def test_a_prompt_that_is_too_long(self):
        self.check(anthropic.BadRequestError, "invalid_request_error", "", max_tokens=10_000_000)

    def test_a_stream_that_cannot_begin_is_an_error(self):
        self.check(anthropic.NotFoundError, "not_found_error", "claude", model="claude", stream=True)
