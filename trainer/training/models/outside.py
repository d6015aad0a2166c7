"""Models that are not ours: a factory of the user's, timm's, torchvision's.

``module:factory`` is imported from the working folder. The factory is called with those of these
keyword arguments that it names, and with all of ``model_options``:

    num_classes     classes of the labels
    input_shape     (channels, height, width) of one image, or (length,) of a token window
    vocab_size      size of the vocabulary, for token windows (else None)
    context_length  tokens in a window, for token windows (else None)

A factory that takes ``**keywords`` gets ``num_classes`` beside those it names.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainer.training.training_errors import ConfigError


def outside_model(
    name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]
) -> nn.Module:
    """The model that ``name`` points to, tried once on a sample of zeros.

    Raises ``ConfigError`` in one line: what is missing, or which shape came out.
    """
    where, _, what = name.partition(":")
    if where == "timm":
        model = _from_timm(what, shape, classes, options)
    elif where == "torchvision":
        model = _from_torchvision(what, classes, options)
    else:
        factory = _factory(name, where, what)
        model = _called(name, factory, _arguments(factory, shape, classes), options)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: {name} gave a {type(model).__name__}, not a torch.nn.Module")
    _try_out(name, model, shape, classes)
    return model


def _from_timm(
    name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]
) -> nn.Module:
    timm = _installed("timm", f"timm:{name}")
    arguments = {"num_classes": classes, "in_chans": shape[0], "pretrained": False}
    create = functools.partial(timm.create_model, name)
    model: nn.Module = _called(f"timm:{name}", create, arguments, options)
    return model


def _from_torchvision(name: str, classes: int, options: dict[str, Any]) -> nn.Module:
    models = _installed("torchvision.models", f"torchvision:{name}")
    arguments = {"num_classes": classes, "weights": None}
    create = functools.partial(models.get_model, name)
    model: nn.Module = _called(f"torchvision:{name}", create, arguments, options)
    return model


def _installed(module: str, name: str) -> Any:
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"model: {name} needs {package} ({_one_line(error)}); add `pip install {package}` to"
            " setup, or choose an image that has it"
        ) from error


def _factory(name: str, module: str, attribute: str) -> Callable[..., Any]:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"model: {name}: no module {error.name!r} in {folder} or among the installed packages"
        ) from error
    except Exception as error:  # whatever the user's module does at import
        raise ConfigError(f"model: {name} cannot be imported: {_one_line(error)}") from error
    factory = getattr(found, attribute, None)
    if factory is None:
        raise ConfigError(f"model: {name}: {found.__file__} has no {attribute!r}")
    if not callable(factory):
        raise ConfigError(f"model: {name} is a {type(factory).__name__}, not a function or a class")
    result: Callable[..., Any] = factory
    return result


def _arguments(factory: Callable[..., Any], shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    tokens = len(shape) == 1
    offered = {
        "num_classes": classes,
        "input_shape": shape,
        "vocab_size": classes if tokens else None,
        "context_length": shape[0] if tokens else None,
    }
    parameters = inspect.signature(factory).parameters.values()
    named = {parameter.name for parameter in parameters}
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    if takes_any and getattr(factory, "__init__", None) is not nn.Module.__init__:
        named.add("num_classes")
    return {name: value for name, value in offered.items() if name in named}


def _called(
    name: str, factory: Callable[..., Any], arguments: dict[str, Any], options: dict[str, Any]
) -> Any:
    try:
        return factory(**{**arguments, **options})
    except Exception as error:  # the user's own code, or a model that the package does not have
        raise ConfigError(f"model: {name} cannot be built: {_one_line(error)}") from error


def _try_out(name: str, model: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """One forward pass of zeros on the CPU; torch's generators are left as they were."""
    tokens = len(shape) == 1
    sample = torch.zeros((1, *shape), dtype=torch.int64 if tokens else torch.float32)
    expected = (1, *shape, classes) if tokens else (1, classes)
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output = model(sample)
    except Exception as error:  # the user's own code
        raise ConfigError(
            f"model: {name} fails on a sample of shape {shape}: {_one_line(error)}"
        ) from error
    finally:
        model.train(training)
    if not isinstance(output, torch.Tensor):
        raise ConfigError(f"model: {name} gives a {type(output).__name__}, not a tensor of scores")
    if tuple(output.shape) != expected:
        raise ConfigError(
            f"model: {name} gives scores of shape {tuple(output.shape)} for one sample of shape"
            f" {shape}; {expected} is expected"
        )


def _one_line(error: BaseException) -> str:
    first = (str(error).strip() or type(error).__name__).split("\n", 1)[0]
    return f"{type(error).__name__}: {first}" if first != type(error).__name__ else first
