"""The Llama architecture, small enough to read. Parameters have the names that Hugging Face gives them."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Numbers of config.json that say what a model is."""

    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 8
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 704
    max_position_embeddings: int = 4096
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        width, kv_width = (n * shape.head_dim for n in (shape.num_attention_heads, shape.num_key_value_heads))
        self.q_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        split = lambda y: y.view(batch, length, -1, self.shape.head_dim).transpose(1, 2)
        q, k, v = rotate(split(self.q_proj(x)), rotary), rotate(split(self.k_proj(x)), rotary), split(self.v_proj(x))
        groups = self.shape.num_attention_heads // self.shape.num_key_value_heads
        k, v = (y.repeat_interleave(groups, dim=1) for y in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Llama(nn.Module):
    """Tokens, and where each document of a packed row begins, to logits. The output projection is the embedding."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # Layers that write into the residual stream begin small, so that its size does not grow with depth.
                writes = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.num_hidden_layers) ** 0.5 if writes else 0.02)

    def forward(self, tokens: Tensor, starts: Tensor) -> Tensor:
        """`tokens`, `starts`: [batch, length]; `starts` says at which index of the row a token's document begins."""
        index = torch.arange(tokens.shape[1], device=tokens.device)
        # A token sees those of its own document up to itself.
        mask = ((index[None, None, :] <= index[None, :, None]) & (index[None, None, :] >= starts[:, :, None]))[:, None]
        rotary = angles(index - starts, self.shape)
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, rotary, mask)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


def angles(positions: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    steps = torch.arange(0, shape.head_dim, 2, device=positions.device, dtype=torch.float32) / shape.head_dim
    turned = positions[:, None, :, None] * shape.rope_theta**-steps
    turned = torch.cat([turned, turned], dim=-1)
    return turned.cos(), turned.sin()


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = (y.to(x.dtype) for y in rotary)
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin
