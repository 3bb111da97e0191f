"""What the tests of clients share: the service at LLM_URL, its model, and what is asked."""

import json
import os
import unittest
import urllib.request

URL = os.environ["LLM_URL"]
PATIENCE_S = 120.0
# What an answer may be at most, in tokens. The answers here end by themselves before.
TOKENS_MAX = 48

CAPITAL = "What is the capital of France? Answer in one sentence."
# So says this model, and by far: no rounding changes it.
PARIS = "The capital of France is Paris."
MESSAGES = [{"role": "user", "content": CAPITAL}]

FILE_QUESTION = "What does notes.txt say?"
FILE_TEXT = "Buy bread and milk."
READ_FILE = {
    "name": "read_file",
    "description": "Returns the text of a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def call(path, body=None):
    """Returns what the service answers to a GET, or to a POST with this body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return json.load(response)


class Case(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.model = call("/v1/models")["data"][0]["id"]
