"""Every option of the bundled trainer, described once: for the trainer, the job spec and the docs.

One file holds one section's frozen dataclass; ``option.py`` says what a description is made of,
``train_config.py`` puts the sections together, ``parse.py`` checks a decoded JSON object against
them, ``reference.py`` prints the page of the docs. Standard library only. Not here: reading files
(``trainer/training/config.py``) and what the options make the trainer do.
"""

from trainer.protocol.train_options.option import OptionError
from trainer.protocol.train_options.parse import parse_options
from trainer.protocol.train_options.train_config import TrainConfig

__all__ = ["OptionError", "TrainConfig", "parse_options"]
