"""The transformer block that the vision and the language models share.

Source: Vaswani et al., Attention Is All You Need (2017), with the normalisation before each part
(Radford et al., Language Models are Unsupervised Multitask Learners (2019), section 2.3).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Self-attention over a sequence; ``causal`` lets a place see only those before it."""

    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.proj_drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """(samples, length, width) to the same shape."""
        samples, length, width = tokens.shape
        shape = (samples, length, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(tokens).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
        )
        result: Tensor = self.proj_drop(self.proj(mixed.transpose(1, 2).flatten(2)))
        return result


class FeedForward(nn.Module):
    """Two linear layers around a GELU, four times as wide inside."""

    def __init__(self, width: int, dropout: float, approximate: str) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU(approximate=approximate)
        self.fc2 = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """(samples, length, width) to the same shape."""
        result: Tensor = self.drop(self.fc2(self.act(self.fc1(tokens))))
        return result


class Block(nn.Module):
    """Attention, then the feed-forward part, each added to what came in."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool,
        dropout: float,
        epsilon: float,
        approximate: str = "none",
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=epsilon)
        self.attn = Attention(width, heads, causal, dropout)
        self.norm2 = nn.LayerNorm(width, eps=epsilon)
        self.mlp = FeedForward(width, dropout, approximate)

    def forward(self, tokens: Tensor) -> Tensor:
        """(samples, length, width) to the same shape."""
        tokens = tokens + self.attn(self.norm1(tokens))
        result: Tensor = tokens + self.mlp(self.norm2(tokens))
        return result
