"""Vision transformers: ViT-S and ViT-B on patches of 16 pixels.

Source: Dosovitskiy et al., An Image is Worth 16x16 Words (2020), table 1; ViT-S as in Touvron et
al., Training data-efficient image transformers (2020), table 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.training.models.transformer import Block
from trainer.training.training_errors import ConfigError

PATCH = 16
# Images under 64 pixels are cut finer: 16-pixel patches of them would be a handful.
SMALL_IMAGE, SMALL_PATCH = 64, 4


class PatchEmbedding(nn.Module):
    """One vector for each square of the image."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, patch)

    def forward(self, images: Tensor) -> Tensor:
        """(samples, channels, height, width) to (samples, patches, width)."""
        result: Tensor = self.proj(images).flatten(2).transpose(1, 2)
        return result


class VisionTransformer(nn.Module):
    """Patches and a class token through blocks; the class token is scored."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        *,
        width: int,
        depth: int,
        heads: int,
        dropout: float = 0.0,
        patch_size: int | None = None,
    ) -> None:
        super().__init__()
        channels, rows, columns = shape
        patch = patch_size or (SMALL_PATCH if min(rows, columns) < SMALL_IMAGE else PATCH)
        if rows % patch or columns % patch:
            raise ConfigError(
                f"model: images of {rows} × {columns} pixels cannot be cut into patches of {patch};"
                f" set image_size to a multiple of {patch}"
            )
        patches = (rows // patch) * (columns // patch)
        self.patch_embed = PatchEmbedding(channels, width, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, patches + 1, width))
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(width, heads, causal=False, dropout=dropout, epsilon=1e-6) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        self._initialise()

    def forward(self, images: Tensor) -> Tensor:
        """(samples, channels, height, width) to (samples, classes)."""
        tokens = self.patch_embed(images)
        first = self.cls_token.expand(tokens.shape[0], -1, -1)
        tokens = self.pos_drop(torch.cat((first, tokens), dim=1) + self.pos_embed)
        for block in self.blocks:
            tokens = block(tokens)
        scores: Tensor = self.head(self.norm(tokens[:, 0]))
        return scores

    def _initialise(self) -> None:
        """As in the reference of DeiT; the head starts at zero, so that all classes are equal."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.zeros_(self.head.weight)
