"""Greedy decoding with transformers, for the goldens of quantised models.

Of each step a golden has the best token (the answer), the second best, and how far the best logit is ahead of its: the
lead. Transformers computes with f32 activations. Kernels for quantised weights round activations to 8 bits, in blocks of
32 whose largest magnitude becomes 127 (`engine/src/cpu/kernels/linear/quantised`). So the leads are given a second time, of
a run of transformers over the same tokens in which the inputs of all linear layers are rounded first, as the kernels do.
"""

from contextlib import contextmanager

import torch

# Numbers of a block of activations.
BLOCK = 32


def to_8_bits(_, inputs):
    blocks = inputs[0].unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-35)
    # Halves are rounded to even numbers, as there.
    return (torch.round(blocks * (127 / largest)) * (largest / 127)).flatten(-2)


@contextmanager
def rounded_activations(model):
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    hooks = [module.register_forward_pre_hook(to_8_bits) for module in linear]
    yield
    for hook in hooks:
        hook.remove()


def best(logits):
    """The best token, the second best and the lead: [...] each, of logits [..., vocab]."""
    values, tokens = torch.topk(logits, 2)
    return tokens[..., 0], tokens[..., 1], values[..., 0] - values[..., 1]


@torch.no_grad()
def golden(model, prompt, answer):
    """A prompt and its greedy answer, with what one pass over both says of each step."""
    tokens = torch.tensor([prompt + answer[:-1]])
    of_answer = lambda: model(tokens, use_cache=False).logits[0, len(prompt) - 1 :]
    found, rivals, leads = best(of_answer())
    with rounded_activations(model):
        logits = of_answer()
    rounded = logits[range(len(answer)), answer] - logits[range(len(answer)), rivals]
    # Where two logits are equal but for rounding, one pass and many steps may choose otherwise.
    assert all(a == b or lead < 1e-3 for a, b, lead in zip(answer, found.tolist(), leads.tolist())), (answer, found, leads)
    numbers = lambda numbers: [round(number, 5) for number in numbers.tolist()]
    leads, rounded = numbers(leads), numbers(rounded)
    return {"prompt": prompt, "answer": answer, "rivals": rivals.tolist(), "leads": leads, "rounded_leads": rounded}
