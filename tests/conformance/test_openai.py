"""The official openai client against a running service (its address in BATON_URL).

Every assertion is about the API's promises, none about what the model knows: any model may be served.
"""

import json
import os
import socket
import threading
import time
import unittest
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import openai

URL = os.environ["BATON_URL"]
SETTLE_S = 20.0
PATIENCE_S = 120.0
MESSAGES = [{"role": "user", "content": "What is ownership?"}]


def get(path):
    """Status and text of a GET."""
    try:
        with urllib.request.urlopen(URL + path, timeout=PATIENCE_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(name):
    """The samples of a metric as (labels, value)."""
    lines = get("/metrics")[1].splitlines()
    return [
        (line[len(name) : line.rindex(" ")], float(line.rsplit(" ", 1)[1]))
        for line in lines
        if line.startswith((name + " ", name + "{"))
    ]


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # No retries: a refusal is to be seen, not to be smoothed over.
        cls.client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def chat(self, **more):
        arguments = {"model": self.model, "messages": MESSAGES, "max_tokens": 16, "temperature": 0, **more}
        return self.client.chat.completions.create(**arguments)

    def complete(self, **more):
        arguments = {"model": self.model, "prompt": "Ownership is", "max_tokens": 16, "temperature": 0, **more}
        return self.client.completions.create(**arguments)

    def eventually(self, what, condition):
        end = time.monotonic() + SETTLE_S
        while not condition():
            self.assertLess(time.monotonic(), end, f"not in time: {what}")
            time.sleep(0.05)


class Models(Case):
    def test_list_and_retrieve(self):
        models = self.client.models.list().data
        self.assertEqual(self.client.models.retrieve(models[0].id), models[0])

    def test_an_unknown_one_is_not_found(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("no-such-model")
        self.assertEqual(caught.exception.code, "model_not_found")


class Chat(Case):
    def test_whole(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        choice = answer.choices[0]
        self.assertEqual(choice.message.role, "assistant")
        self.assertTrue(choice.message.content)
        self.assertIn(choice.finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertGreater(usage.prompt_tokens, 0)
        self.assertTrue(0 < usage.completion_tokens <= 16)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertTrue(0 <= usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens)
        self.assertTrue(answer._request_id)

    def test_a_stream_says_the_same(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        finishes = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
        self.assertEqual(finishes, [whole.choices[0].finish_reason])
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)

    def test_no_usage_in_a_stream_unless_asked(self):
        chunks = list(self.chat(stream=True, max_tokens=2))
        self.assertTrue(all(chunk.usage is None and chunk.choices for chunk in chunks))

    def test_content_in_parts_is_the_same_prompt(self):
        parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "ownership?"}]
        answer = self.chat(messages=[{"role": "user", "content": parts}])
        self.assertEqual(answer.choices[0].message.content, self.chat().choices[0].message.content)

    def test_max_tokens_is_a_length(self):
        answer = self.chat(max_tokens=openai.NOT_GIVEN, max_completion_tokens=1, extra_body={"ignore_eos": True})
        self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 1))

    def test_n_choices_of_one_seed_repeat(self):
        def texts():
            answer = self.chat(n=3, temperature=1.5, seed=5)
            self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
            return [choice.message.content for choice in answer.choices]

        first = texts()
        self.assertEqual(first, texts())
        self.assertGreater(len(set(first)), 1, "each choice has a seed of its own")

    def test_n_streams_are_told_apart(self):
        whole = [choice.message.content for choice in self.chat(n=2, temperature=1.5, seed=6).choices]
        streamed = ["", ""]
        for chunk in self.chat(n=2, temperature=1.5, seed=6, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
        self.assertEqual(streamed, whole)

    def test_stop_cuts_at_the_string(self):
        whole = self.chat(max_tokens=32).choices[0].message.content
        stop = whole[len(whole) // 2 :][:3]
        for stream in (False, True):
            answer = self.chat(max_tokens=32, stop=[stop], stream=stream)
            if stream:
                choices = [choice for chunk in answer for choice in chunk.choices]
                text = "".join(choice.delta.content or "" for choice in choices)
                finish = choices[-1].finish_reason
            else:
                text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
            self.assertEqual((text, finish), (whole[: whole.index(stop)], "stop"))

    def test_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3, max_tokens=8, extra_body={"ignore_eos": True})
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), 8)
        for entry in content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].logprob, entry.logprob, "greedy takes the most probable")
            self.assertEqual(sorted((e.logprob for e in entry.top_logprobs), reverse=True),
                             [e.logprob for e in entry.top_logprobs])
        self.assertIsNone(self.chat(max_tokens=1).choices[0].logprobs)

    def test_logit_bias_bans_and_forces(self):
        answer = self.chat(max_tokens=4, logprobs=True, logit_bias={"100": 100})
        self.assertEqual(len({entry.token for entry in answer.choices[0].logprobs.content}), 1)

    def test_many_at_once_say_what_one_says(self):
        prompts = [f"What is the number {number}?" for number in range(8)]

        def ask(prompt):
            return self.chat(messages=[{"role": "user", "content": prompt}]).choices[0].message.content

        alone = [ask(prompt) for prompt in prompts]
        together = [None] * len(prompts)

        def run(at):
            together[at] = ask(prompts[at])

        threads = [threading.Thread(target=run, args=(at,)) for at in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual(together, alone)


class Completions(Case):
    def test_whole_and_stream(self):
        whole = self.complete()
        self.assertEqual(whole.object, "text_completion")
        text = "".join(chunk.choices[0].text for chunk in self.complete(stream=True))
        self.assertEqual(text, whole.choices[0].text)

    def test_a_batch_says_what_each_says(self):
        prompts = ["Ownership is", "A trait is", "The borrow checker"]
        alone = [self.complete(prompt=prompt).choices[0].text for prompt in prompts]
        batch = self.complete(prompt=prompts)
        self.assertEqual([choice.text for choice in batch.choices], alone)
        self.assertEqual([choice.index for choice in batch.choices], [0, 1, 2])

    def test_token_ids_are_a_prompt(self):
        one = self.complete(prompt=[100, 101, 102])
        self.assertEqual(one.usage.prompt_tokens, 3)
        both = self.complete(prompt=[[100, 101, 102], [103]])
        self.assertEqual(both.usage.prompt_tokens, 4)
        self.assertEqual(both.choices[0].text, one.choices[0].text)

    def test_logprobs(self):
        choice = self.complete(logprobs=2, max_tokens=6, extra_body={"ignore_eos": True}).choices[0]
        logprobs = choice.logprobs
        lengths = {len(logprobs.tokens), len(logprobs.token_logprobs), len(logprobs.top_logprobs), len(logprobs.text_offset)}
        self.assertEqual(lengths, {6})
        for token, offset in zip(logprobs.tokens, logprobs.text_offset):
            if "\ufffd" not in token:
                self.assertTrue(choice.text[offset:].startswith(token), (token, offset, choice.text))


class Tokens(Case):
    def post(self, path, body):
        request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return json.load(response)

    def test_a_chat_that_is_rendered_has_the_tokens_of_the_chat(self):
        chat = self.chat(extra_body={"return_token_ids": True})
        body = {"model": self.model, "messages": MESSAGES, "max_tokens": 16, "temperature": 0}
        rendered = self.post("/v1/chat/completions/render", body)
        self.assertEqual(len(rendered["token_ids"]), chat.usage.prompt_tokens)
        answer = self.post("/inference/v1/generate", rendered)
        self.assertEqual(answer["choices"][0]["token_ids"], chat.choices[0].token_ids)
        self.assertEqual(answer["usage"]["completion_tokens"], chat.usage.completion_tokens)


class Errors(Case):
    def check(self, kind, param, **more):
        with self.assertRaises(kind) as caught:
            self.chat(**more)
        self.assertEqual(caught.exception.param, param, caught.exception)
        self.assertEqual(caught.exception.type, "invalid_request_error")
        return caught.exception

    def test_model(self):
        error = self.check(openai.NotFoundError, "model", model="gpt-4")
        self.assertIn(self.model, str(error), "it says which there are")

    def test_values_and_fields(self):
        bad = openai.BadRequestError
        self.check(bad, "messages", messages=[])
        self.check(bad, "temperature", temperature=3)
        self.check(bad, "temperature", temperature="hot")
        self.check(bad, "max_tokens", max_tokens=0)
        self.check(bad, "colour", extra_body={"colour": "red"})
        self.check(bad, "tools", tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
        twins = {"name": "a", "schema": {"type": "array", "uniqueItems": True}}
        wanted = {"type": "json_schema", "json_schema": twins}
        self.check(bad, "response_format.json_schema.schema", response_format=wanted)
        self.check(bad, "messages[0].content[0]", messages=[
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        ])

    def test_the_context_has_an_end(self):
        error = self.check(openai.BadRequestError, "messages", max_tokens=10_000_000)
        self.assertEqual(error.code, "context_length_exceeded")

    def test_a_stream_that_cannot_begin_is_an_error(self):
        self.check(openai.NotFoundError, "model", model="gpt-4", stream=True)

    def test_bodies_that_are_no_json(self):
        for body, kind, status in (
            (b"{", "application/json", 400),
            (b'{"model": "\xff"}', "application/json", 400),
            (b"{}", "text/plain", 415),
        ):
            request = urllib.request.Request(URL + "/v1/completions", body, {"Content-Type": kind})
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=PATIENCE_S)
            with caught.exception as response:
                self.assertEqual(response.code, status)
                self.assertTrue(json.load(response)["error"]["message"])

    def test_unknown_paths(self):
        status, body = get("/v2/nothing")
        self.assertEqual((status, json.loads(body)["error"]["code"]), (404, "unknown_url"))


class Disconnects(Case):
    """Whatever clients do, no request stays open and no block stays taken."""

    def settled(self):
        if samples("baton_requests_open") != [("", 0.0)]:
            return False
        taken = [(labels, value) for labels, value in samples("baton_kv_blocks")
                 if 'state="in_use"' in labels or 'state="filling"' in labels]
        return bool(taken) and all(value == 0 for _, value in taken)

    def test_a_stream_that_is_dropped(self):
        for events in (1, 3):
            stream = self.chat(stream=True, max_tokens=400, extra_body={"ignore_eos": True})
            for _, _ in zip(range(events), stream):
                pass
            stream.close()
            self.eventually("blocks are free or cached", self.settled)

    def test_a_socket_that_is_closed_at_any_moment(self):
        address = urlsplit(URL)
        body = json.dumps({"model": self.model, "messages": MESSAGES, "max_tokens": 400, "ignore_eos": True}).encode()
        request = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        for length in (10, len(request) - 5, len(request)):
            for wait_s in (0, 0.02, 0.2):
                with socket.create_connection((address.hostname, address.port)) as connection:
                    connection.sendall(request[:length])
                    time.sleep(wait_s)
        self.eventually("blocks are free or cached", self.settled)
        self.assertTrue(self.chat().choices[0].message.content, "and the service serves on")


class Health(Case):
    def test_live_ready_metrics(self):
        self.assertEqual(get("/live")[0], 200)
        status, body = get("/ready")
        self.assertEqual((status, json.loads(body)["ready"]), (200, True))
        self.chat(max_tokens=1)
        self.assertTrue(samples("baton_time_to_first_token_seconds_count"))


if __name__ == "__main__":
    unittest.main()
