"""Muon for matrices, AdamW for the rest.

Muon: Keller Jordan and others, "Muon: An optimizer for hidden layers in neural networks", 2024: the momentum of a
matrix is replaced by the nearest orthogonal matrix, found by Newton-Schulz iterations.
"""

import torch
from torch import Tensor

NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr: float, momentum: float = 0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"]
                momentum.lerp_(parameter.grad, 1 - group["momentum"])
                nesterov = parameter.grad.lerp(momentum, group["momentum"])
                rows, columns = parameter.shape
                scale = max(1.0, rows / columns) ** 0.5
                parameter.add_(orthogonalize(nesterov), alpha=-group["lr"] * scale)


def orthogonalize(matrix: Tensor) -> Tensor:
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x


def optimizers(model: torch.nn.Module, matrix_lr: float, other_lr: float) -> list[torch.optim.Optimizer]:
    """The embedding is no matrix in Muon's sense: its rows are looked up, not multiplied."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [Muon(matrices, matrix_lr), torch.optim.AdamW(others, other_lr, betas=(0.9, 0.95), weight_decay=0.0)]
