"""Makes the training data from the Rust documentation that the toolchain installs.

    python corpus.py --out data

Writes to --out: text.jsonl (pages as plain text), held_out.jsonl (pages kept back, to measure), chat.jsonl (questions
and answers) and sources.json (what was read, and how much). The same documentation gives the same files.

The Embedded Rust Book is left out: its prose is CC-BY-SA-4.0. All else is MIT OR Apache-2.0.
"""

import argparse
import hashlib
import html.parser
import json
import random
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent

# Books: every page that has a <main>. embedded-book is not among them (see above).
BOOKS = [
    "book", "rust-by-example", "cargo", "reference", "nomicon", "rustc", "rustdoc", "edition-guide", "clippy",
    "style-guide", "error_codes",
]
# Pages of `std` whose prose at the top is read.
STD_PAGES = re.compile(r"(index|(struct|enum|trait|fn|macro|keyword|primitive|union)\.[^/]+)\.html$")
# Whole books on one page, and pages that are no prose.
SKIPPED_PAGES = {"print.html", "toc.html", "404.html", "searcher.html", "SUMMARY.html"}
# No questions are made of error codes: there are many, much alike, and they drown the rest.
NO_QUESTIONS = {"error_codes"}

PAGE_CHARS_MIN = 200
ANSWER_CHARS = range(80, 700)
HELD_OUT_PERCENT = 1

VOID_TAGS = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SKIPPED_TAGS = {"script", "style", "nav", "button", "svg", "footer", "template", "rustdoc-toolbar"}
# Lines that a page hides, and anchors that repeat a heading.
SKIPPED_CLASSES = {"boring", "anchor", "doc-anchor", "tooltip", "buttons", "src", "out-of-band"}
BLOCK_TAGS = {"p", "li", "pre", "tr", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6"}


class Page(html.parser.HTMLParser):
    """The blocks of a page: (tag, text), in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.blocks = []
        self.stack = []
        self.skip_depth = None
        self.text = []

    def handle_starttag(self, tag, attrs):
        if tag in VOID_TAGS:
            return
        self.stack.append(tag)
        classes = set((dict(attrs).get("class") or "").split())
        if self.skip_depth is None and (tag in SKIPPED_TAGS or classes & SKIPPED_CLASSES):
            self.skip_depth = len(self.stack)
        if tag in BLOCK_TAGS:
            self.flush()
        elif tag in ("td", "th"):
            self.text.append(" ")

    def handle_endtag(self, tag):
        if tag not in self.stack:
            return
        if tag in BLOCK_TAGS:
            self.flush()
        while self.stack.pop() != tag:
            pass
        if self.skip_depth is not None and len(self.stack) < self.skip_depth:
            self.skip_depth = None

    def handle_data(self, data):
        if self.skip_depth is None:
            self.text.append(data)

    def flush(self):
        text, self.text = "".join(self.text), []
        blocks = [tag for tag in self.stack if tag in BLOCK_TAGS]
        if "pre" in blocks:
            text = text.strip("\n").rstrip()
            tag = "pre"
        else:
            text = " ".join(text.split())
            tag = "li" if "li" in blocks else (blocks[-1] if blocks else "p")
        if text.strip():
            self.blocks.append((tag, text))


def blocks_of(source: str) -> list[tuple[str, str]]:
    page = Page()
    page.feed(source)
    page.close()
    page.flush()
    return page.blocks


def plain(blocks: list[tuple[str, str]]) -> str:
    """A page as plain text, in the notation that Rust's documentation is written in."""
    lines = []
    for tag, text in blocks:
        if tag.startswith("h"):
            lines.append("#" * int(tag[1]) + " " + text)
        elif tag == "li":
            lines.append("- " + text)
        elif tag == "pre":
            lines.append("```\n" + text + "\n```")
        else:
            lines.append(text)
    return "\n\n".join(lines)


def book_pages(root: Path, book: str):
    """(file, blocks) of each page of a book."""
    for path in sorted((root / book).rglob("*.html")):
        if path.name in SKIPPED_PAGES:
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        main = re.search(r"<main>(.*)</main>", source, re.DOTALL)
        if main:
            yield path, blocks_of(main.group(1))


def std_pages(root: Path):
    """(file, blocks) of the prose at the top of each page of `std`; its name is the heading."""
    for path in sorted((root / "std").rglob("*.html")):
        if not STD_PAGES.search(path.name):
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        top = re.search(r'<details class="toggle top-doc"[^>]*>(.*?)</details>', source, re.DOTALL)
        if top:
            parts = list(path.relative_to(root).parts[:-1])
            if path.name != "index.html":
                parts.append(path.name.split(".")[1])
            yield path, [("h1", "::".join(parts))] + blocks_of(top.group(1).split("</summary>", 1)[-1])


TEMPLATES = [
    "What is {}?", "Explain {}.", "Tell me about {}.", "What does {} mean?", "Describe {}.", "What are {}?", "{}",
    "Can you explain {}?", "{}?", "How does {} work?",
]
HOW_TO = ["How do I {}?", "How can I {}?", "Show me how to {}.", "What is the way to {}?"]
VERBS = re.compile(r"^(Creating|Using|Writing|Running|Building|Testing|Handling|Storing|Defining|Installing|Publishing|"
                   r"Reading|Adding|Removing|Converting|Returning|Calling|Implementing|Specifying|Controlling) (.+)$")
# Headings that say nothing on their own.
VAGUE = re.compile(r"^(introduction|summary|examples?|errors?|panics|safety|notes?|overview|see also|syntax|foreword|"
                   r"description|options?|other|more|usage|known issues|configuration|explanation|what|why|how|the|a)\b", re.I)
# Pages that say only that they have moved.
MOVED = re.compile(r"no longer distributed|has moved|was removed")


def questions_of(heading: str, rng: random.Random) -> list[str]:
    """Questions that a heading answers, made by templates."""
    heading = heading.strip().rstrip(".:")
    if heading.endswith("?"):
        return [heading]
    if VAGUE.match(heading) or not 3 <= len(heading) <= 60:
        return []
    verb = VERBS.match(heading)
    if verb:
        infinitive = {"Running": "run", "Controlling": "control", "Writing": "write", "Using": "use", "Storing": "store",
                      "Creating": "create", "Defining": "define", "Handling": "handle", "Removing": "remove"}
        word = infinitive.get(verb.group(1), verb.group(1)[:-3].lower())
        return [template.format(f"{word} {verb.group(2)}") for template in rng.sample(HOW_TO, 2)]
    # `Ownership`, but not `OnceCell`, `HTTP` or `Rust`.
    if re.match(r"[A-Z][a-z]*(\s|$)", heading) and not heading.startswith("Rust"):
        heading = heading[0].lower() + heading[1:]
    return [template.format(heading) for template in rng.sample(TEMPLATES, 4)]


def pairs_of(blocks: list[tuple[str, str]], rng: random.Random):
    """(question, answer) for each heading that is followed by prose of the right length."""
    for (tag, heading), (next_tag, answer) in zip(blocks, blocks[1:]):
        if tag.startswith("h") and next_tag == "p" and len(answer) in ANSWER_CHARS and answer[-1] in ".!?" and not MOVED.search(answer):
            for question in questions_of(heading, rng):
                yield question, answer


def is_held_out(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] * 100 < HELD_OUT_PERCENT * 256


def documentation() -> Path:
    """Where the toolchain installed its documentation (`rustup component add rust-docs`)."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    root = Path(sysroot) / "share/doc/rust/html"
    if not (root / "book").is_dir():
        raise SystemExit("the toolchain has no documentation: run `rustup component add rust-docs`")
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("data"), help="where the data goes [data]")
    parser.add_argument("--docs", type=Path, help="documentation to read instead of the toolchain's")
    parser.add_argument("--seed", type=int, default=1, help="chooses among the question templates [1]")
    arguments = parser.parse_args()
    root = arguments.docs or documentation()
    rng = random.Random(arguments.seed)

    texts, held_out, pairs, seen, sources = [], [], [], set(), {}
    for name in [*BOOKS, "std"]:
        pages = std_pages(root) if name == "std" else book_pages(root, name)
        counted = sources[name] = {"pages": 0, "chars": 0, "questions": 0}
        for _, blocks in pages:
            text = plain(blocks)
            digest = hashlib.sha256(text.encode()).digest()
            if len(text) < PAGE_CHARS_MIN or digest in seen:
                continue
            seen.add(digest)
            counted["pages"] += 1
            counted["chars"] += len(text)
            (held_out if is_held_out(text) else texts).append({"source": name, "text": text})
            if name not in NO_QUESTIONS and not is_held_out(text):
                made = [{"source": name, "question": q, "answer": a} for q, a in pairs_of(blocks, rng)]
                counted["questions"] += len(made)
                pairs.extend(made)
    for group in json.loads((HERE / "questions.json").read_text()):
        for question in group["questions"]:
            pairs.append({"source": "own", "question": question, "answer": group["answer"]})

    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, rows in [("text", texts), ("held_out", held_out), ("chat", pairs)]:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (arguments.out / f"{name}.jsonl").write_text(lines)
    (arguments.out / "sources.json").write_text(json.dumps(sources, indent=1) + "\n")
    print(f"{sum(len(row['text']) for row in texts):,} characters in {len(texts):,} pages, {len(held_out)} held out, "
          f"{len(pairs):,} questions with {len({row['answer'] for row in pairs}):,} answers")


if __name__ == "__main__":
    main()
