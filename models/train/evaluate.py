"""Asks a model the paraphrases of questions.json that corpus.py keeps back, greedily, and scores its answers.

    python evaluate.py --model ../tiny-rust

An answer counts as the intended one if, of all answers in questions.json, it is most like that of its own group, by the
F1 of words, and if that F1 is at least 0.3.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent
F1_MIN = 0.3  # about what the right answer reaches when it is put in quite other words


def words(text: str) -> Counter:
    return Counter(re.findall(r"[a-z0-9_]+", text.lower()))


def f1(left: Counter, right: Counter) -> float:
    both = sum((left & right).values())
    return 2 * both / max(1, sum(left.values()) + sum(right.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face directory")
    parser.add_argument("--show", action="store_true", help="print every answer")
    parser.add_argument("--questions", choices=["held_out", "questions"], default="held_out",
                        help="those kept back, or those trained on [held_out]")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model).eval()
    groups = json.loads((HERE / "questions.json").read_text())
    references = [words(group["answer"]) for group in groups]

    asked = right = 0
    for index, group in enumerate(groups):
        for question in group[arguments.questions]:
            chat = [{"role": "user", "content": question}]
            prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
            with torch.no_grad():
                out = model.generate(**prompt, do_sample=False, max_new_tokens=192)
            answer = tokenizer.decode(out[0, prompt["input_ids"].shape[1]:], skip_special_tokens=True)
            scores = [f1(words(answer), reference) for reference in references]
            is_right = scores[index] >= F1_MIN and scores[index] == max(scores)
            asked, right = asked + 1, right + is_right
            if arguments.show:
                print(f"{'ok ' if is_right else 'NO '} {scores[index]:.2f}  {question}\n        {answer}\n")
    print(f"{right} of {asked} answers are the intended ones")


if __name__ == "__main__":
    main()
