"""Writes a copy of the chat model that calls tools: teach_tools.py MODEL COPY

The model was not trained for it, but goes on with what it sees. So the copy has a second chat template, for chats with
tools, which shows two calls before the chat begins. All else stays as it is, chats without tools among it.
"""

import struct
import sys
from pathlib import Path

TEMPLATE = Path(__file__).with_name("tools.jinja")
KEY = "tokenizer.chat_template.tool_use"
STRING, ARRAY = 8, 9
# Bytes of a value, by its type.
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32


def padded(length):
    """Returns where data begins that come after so many bytes."""
    return -(-length // ALIGNMENT) * ALIGNMENT


class Reader:
    """Walks over the head of a GGUF file."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (number,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return number

    def string(self):
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            if inner in WIDTHS:
                self.at += WIDTHS[inner] * count
            else:
                for _ in range(count):
                    self.value(inner)
        else:
            self.at += WIDTHS[kind]

    def tensor(self):
        self.string()
        dimensions = self.number("I")
        # Its dimensions, its type and its place.
        self.at += 8 * dimensions + 4 + 8


def taught(data, template):
    """Returns the file `data` with one more template."""
    reader = Reader(data)
    magic, version, tensors, values = (reader.number(form) for form in ("I", "I", "Q", "Q"))
    for _ in range(values):
        name = reader.string()
        if name in (KEY, "general.alignment"):
            sys.exit(f"teach_tools: the model has {name} already")
        reader.value(reader.number("I"))
    end_of_values = reader.at
    for _ in range(tensors):
        reader.tensor()
    string = lambda text: struct.pack("<Q", len(text.encode())) + text.encode()
    head = struct.pack("<IIQQ", magic, version, tensors, values + 1) + data[24:end_of_values]
    head += string(KEY) + struct.pack("<I", STRING) + string(template) + data[end_of_values : reader.at]
    return head + bytes(padded(len(head)) - len(head)) + data[padded(reader.at) :]


if __name__ == "__main__":
    model, copy = sys.argv[1:]
    Path(copy).write_bytes(taught(Path(model).read_bytes(), TEMPLATE.read_text()))
