"""What a machine tells of its commands, without the values of secrets that they have printed.

Not here: their log (`masked_logs`), or what is hidden (`secret_mask`).
"""

from __future__ import annotations

from dataclasses import replace

from trainer.agent.rules.observations import (
    Observation,
    OutputsFailed,
    PreparationFailed,
    PublicationFailed,
    TrainerExited,
)
from trainer.agent.secrets.secret_mask import SecretMask


def masked(mask: SecretMask, observation: Observation) -> Observation:
    """The observation itself, but for those that quote what a command has printed, or how it has
    called its files.
    """
    match observation:
        case PreparationFailed() | PublicationFailed() | OutputsFailed():
            return replace(observation, message=mask.text(observation.message))
        case TrainerExited(end=end) if end.error is not None:
            error = replace(end.error, message=mask.text(end.error.message))
            if error.type is not None:
                error = replace(error, type=mask.text(error.type))
            return replace(observation, end=replace(end, error=error))
        case _:
            return observation
