"""Compares log probabilities that Baton gave with those of transformers, on this card in float32.

    families.py FILE

FILE has the model's folder and what was asked: prompts, the tokens of the answers, their log probabilities. Prints JSON
with how far the farthest is. Exit status 1: farther than rounding explains.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

# How far a log probability may be: Baton rounds activations to bf16.
NEAR = 0.5


def main(path):
    with open(path, encoding="utf-8") as file:
        said = json.load(file)
    model = AutoModelForCausalLM.from_pretrained(said["model"], dtype=torch.float32, attn_implementation="eager").cuda().eval()
    farthest = 0.0
    for ask in said["asked"]:
        prompt, tokens = ask["prompt"], ask["tokens"]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens]).cuda()).logits[0].double()
        wanted = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
        for row, (token, found) in enumerate(zip(tokens, ask["logprobs"])):
            apart = abs(wanted[row, token].item() - found)
            if not apart <= farthest:
                farthest = apart
    print(json.dumps({"farthest": farthest}))
    return 0 if farthest <= NEAR else f"the farthest log probability is {farthest} apart; at most {NEAR} is rounding"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
