"""Renders every case of cases.json with every template here through transformers, and writes goldens.json.

    pip install transformers jinja2
    python make_goldens.py
"""

import json
from pathlib import Path

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

HERE = Path(__file__).parent
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source: str, case: dict) -> dict:
    arguments = {"add_generation_prompt": True, **SPECIAL, **case.get("extra", {})}
    arguments["add_generation_prompt"] = case.get("add_generation_prompt", True)
    try:
        texts, _ = render_jinja_template([case["messages"]], chat_template=source, **arguments)
        return {"text": texts[0]}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"raised": str(error)}
        return {"fails": type(error).__name__}
    except TypeError as error:
        return {"fails": type(error).__name__}


def main() -> None:
    cases = json.loads((HERE / "cases.json").read_text())
    goldens = {}
    for path in sorted(HERE.glob("*.jinja")):
        goldens[path.stem] = [render(path.read_text(), case) for case in cases]
    text = json.dumps(goldens, ensure_ascii=False, indent=1)
    (HERE / "goldens.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
