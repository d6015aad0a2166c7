"""A language model of GPT-2's form: predicts each token from those before it.

Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), section 2.3 and
table 2; initialisation as in section 2.3 (residual layers scaled by 1 / sqrt(their number)).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from trainer.training.models.transformer import Block
from trainer.training.training_errors import ConfigError


class Gpt(nn.Module):
    """Token and place embeddings through causal blocks; the scores share the token embedding."""

    def __init__(
        self,
        context: int,
        vocabulary: int,
        *,
        width: int,
        depth: int,
        heads: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(width, heads, causal=True, dropout=dropout, epsilon=1e-5, approximate="tanh")
            for _ in range(depth)
        )
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self._initialise()
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """(samples, length) int64 to (samples, length, vocabulary) of scores for what follows."""
        length = tokens.shape[1]
        if length > self.wpe.num_embeddings:
            raise ConfigError(
                f"model: a window of {length} tokens is longer than the model's"
                f" {self.wpe.num_embeddings}; set context_length"
            )
        places = torch.arange(length, device=tokens.device)
        hidden = self.drop(self.wte(tokens) + self.wpe(places))
        for block in self.blocks:
            hidden = block(hidden)
        scores: Tensor = self.lm_head(self.ln_f(hidden))
        return scores

    def _initialise(self) -> None:
        residual_std = 0.02 / math.sqrt(2 * len(self.blocks))
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                last = name.endswith(("attn.proj", "mlp.fc2"))
                nn.init.normal_(module.weight, std=residual_std if last else 0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
