"""The models: their published sizes, their shapes, and models from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from trainer.training.models import MODELS, build_model, model_blocks
from trainer.training.training_errors import ConfigError

IMAGE = (3, 224, 224)
LARGE = {"resnet152", "vit_base"}  # built of the same blocks as resnet50 and vit_small


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters", "blocks"),
    [
        # torchvision's documentation of its weights.
        ("resnet18", IMAGE, 1000, 11_689_512, 8),
        ("resnet50", IMAGE, 1000, 25_557_032, 16),
        ("resnet152", IMAGE, 1000, 60_192_808, 50),
        ("vit_base", IMAGE, 1000, 86_567_656, 12),
        # timm's table of results (vit_small_patch16_224).
        ("vit_small", IMAGE, 1000, 22_050_664, 12),
        # GPT-2's smallest, with its embedding shared.
        ("gpt_small", (1024,), 50_257, 124_439_808, 12),
    ],
)
def test_sizes_are_the_published_ones(
    name: str, shape: tuple[int, ...], classes: int, parameters: int, blocks: int
) -> None:
    with torch.device("meta"):
        model = build_model(name, shape, classes)
    assert sum(each.numel() for each in model.parameters()) == parameters
    assert len(model_blocks(model)) == blocks


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full) if name in LARGE else name
        for name in sorted(set(MODELS) - {"gpt_tiny", "gpt_small"})
    ],
)
def test_images_of_any_usual_size_are_scored(name: str) -> None:
    for shape in ((1, 8, 8), (3, 32, 32), IMAGE):
        with torch.device("meta"):
            model = build_model(name, shape, 7)
            assert model(torch.zeros(2, *shape)).shape == (2, 7)


def test_a_token_sees_only_those_before_it() -> None:
    torch.manual_seed(0)
    model = build_model("gpt_tiny", (16,), 50).eval()
    tokens = torch.randint(0, 50, (1, 16))
    changed = tokens.clone()
    changed[0, 10] = (changed[0, 10] + 1) % 50
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert before.shape == (1, 16, 50)
    assert torch.equal(before[0, :10], after[0, :10])
    assert not torch.equal(before[0, 10], after[0, 10])


def test_parameter_names_are_those_that_weights_are_published_under() -> None:
    with torch.device("meta"):
        resnet = build_model("resnet50", IMAGE, 1000).state_dict()
        vit = build_model("vit_base", IMAGE, 1000).state_dict()
    assert {"layer1.0.downsample.0.weight", "layer4.2.bn3.running_var", "fc.bias"} <= set(resnet)
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.11.attn.qkv.bias"} <= set(
        vit
    )


def test_options_reach_the_model() -> None:
    model = build_model("vit_small", (3, 32, 32), 5, {"patch_size": 8, "dropout": 0.1})
    assert model.get_parameter("pos_embed").shape == (1, 17, 384)
    assert next(each.p for each in model.modules() if isinstance(each, torch.nn.Dropout)) == 0.1


@pytest.mark.parametrize(
    ("name", "shape", "options", "sentence"),
    [
        ("resnet51", IMAGE, {}, "did you mean 'resnet50'?"),
        ("resnet18", (64,), {}, "resnet18 takes images"),
        ("gpt_tiny", IMAGE, {}, "gpt_tiny takes tokens"),
        ("vit_small", (3, 100, 100), {}, "set image_size to a multiple of 16"),
        ("resnet18", IMAGE, {"depth": 3}, "model_options: not accepted by resnet18"),
        ("timm:vit_tiny", IMAGE, {}, "needs timm"),
        ("torchvision:alexnet", IMAGE, {}, "needs torchvision"),
        ("nowhere:model", IMAGE, {}, "no module 'nowhere'"),
        ("outside_models:missing", IMAGE, {}, "has no 'missing'"),
        ("outside_models:NUMBER", IMAGE, {}, "is a int, not a function or a class"),
        ("outside_models:no_module", IMAGE, {}, "gave a str, not a torch.nn.Module"),
        ("outside_models:wrong_shape", IMAGE, {}, r"scores of shape \(1, 6\) .* \(1, 5\)"),
        ("outside_models:fails", IMAGE, {}, "cannot be built: KeyError: 'weights'"),
        ("outside_models:pair", IMAGE, {}, "gives a tuple, not a tensor"),
        ("outside_models:breaks_inside", IMAGE, {}, "fails on a sample of shape"),
    ],
)
def test_what_cannot_be_built_gets_one_sentence(
    name: str, shape: tuple[int, ...], options: dict[str, int], sentence: str, workdir: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        build_model(name, shape, 5, options)
    assert "\n" not in str(caught.value)


def test_a_factory_of_the_users_gets_what_it_names(workdir: Path) -> None:
    state = torch.get_rng_state()
    model = build_model("outside_models:image_model", (3, 16, 16), 5, {"width": 8})
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 5)
    assert len(model_blocks(model)) == 3
    plain = build_model("outside_models:token_model", (12,), 40)
    assert plain(torch.zeros(2, 12, dtype=torch.int64)).shape == (2, 12, 40)
    torch.set_rng_state(state)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with models of the user's."""
    (tmp_path / "outside_models.py").write_text(OUTSIDE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "outside_models", raising=False)
    for package in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, package, None)
    return tmp_path


OUTSIDE = """
from torch import nn

NUMBER = 3

def image_model(input_shape, num_classes, width):
    def block():
        return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
    channels = input_shape[0]
    body = nn.Sequential(block(), block(), block())
    return nn.Sequential(nn.Conv2d(channels, width, 1), body, nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(width, num_classes))

def token_model(vocab_size, context_length):
    assert context_length == 12
    return nn.Sequential(nn.Embedding(vocab_size, 4), nn.Linear(4, vocab_size))

def no_module(**anything):
    return "model"

def wrong_shape(num_classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes + 1))

def fails():
    return {}["weights"]

class pair(nn.Module):
    def forward(self, images):
        return images, images

def breaks_inside(num_classes):
    return nn.Linear(7, num_classes)
"""
