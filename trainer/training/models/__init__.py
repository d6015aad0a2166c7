"""The models one can name in a configuration, written out here so that nothing else is installed.

``build_model`` makes one by name; ``model_blocks`` says where a model may be cut for activation
checkpointing and sharding. Images: (samples, channels, height, width) to (samples, classes) of
unnormalised scores. Tokens: (samples, length) of whole numbers to (samples, length, vocabulary).
Own models keep the parameter names of torchvision, timm and nanoGPT, so that their weights load.
"""

from trainer.training.models.blocks import model_blocks
from trainer.training.models.model_catalog import MODELS, build_model

__all__ = ["MODELS", "build_model", "model_blocks"]
