"""What is made small, and what is counted: the loss and the accuracy of a batch.

Images have one label each; a window of tokens has one for every token and counts as one sample.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def loss_sum_of(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy summed over samples; of a window of tokens, the mean over its tokens.

    scores: (samples, classes) or (samples, tokens, vocabulary), unnormalised. ``smoothing`` is the
    part of a label that is spread over all classes: Szegedy et al., Rethinking the Inception
    Architecture for Computer Vision (2015), section 7.
    """
    if labels.ndim == 1:
        return functional.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing)
    loss = functional.cross_entropy(
        scores.flatten(0, -2), labels.flatten(), reduction="sum", label_smoothing=smoothing
    )
    return loss / labels[0].numel()


def accuracies(scores: Tensor, labels: Tensor) -> Tensor:
    """(samples,) double: for each sample the part of its labels that is right."""
    right = (scores.argmax(-1) == labels).double()
    return right if right.ndim == 1 else right.flatten(1).mean(1)
