"""Which GPUs a machine must carry, as a person writes it: "V100", "V100:2", "A100:80GB:8".

Only the wish lives here. Not here: which machines carry it (`machine_need`), or whether a model
fits the memory of a GPU (`trainer.protocol.train_estimate`).
"""

import difflib
import re
from dataclasses import dataclass

from app.domain.market.gpu_catalog import GPU_NAMES, models_of
from app.domain.units.errors import InvalidValue

MAX_GPUS_PER_NODE = 16
MAX_GPU_CHOICES = 16
MAX_GPU_MEMORY_GB = 1_024

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,31}", re.ASCII)
_MEMORY = re.compile(r"([0-9]{1,5})GB(\.\.)?", re.ASCII | re.IGNORECASE)
_COUNT = re.compile(r"[0-9]{1,4}", re.ASCII)
_VARIANT = re.compile(r"(.+)-([0-9]{1,4}GB)", re.ASCII)
# Other spellings of the same name, without hyphens.
_PLAIN_NAMES = {name.replace("-", ""): name for name in GPU_NAMES}
_HOW = "write V100, V100:2, A100:80GB:8 or 40GB.. (any with that memory)"


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """One acceptable GPU shape of a machine.

    `name` is one of the catalog's, or None for "any GPU with at least `memory_gb`"; `memory_gb`
    beside a name picks that variant of it, None means any variant; `count` is GPUs per machine.
    """

    name: str | None
    memory_gb: int | None = None
    count: int = 1

    def __str__(self) -> str:
        parts = [self.name] if self.name else []
        if self.memory_gb is not None:
            parts.append(f"{self.memory_gb}GB" + ("" if self.name else ".."))
        return ":".join([*parts, str(self.count)])

    @property
    def words(self) -> str:
        """As people read it: "1 × V100", "8 × A100 80 GB", "1 GPU of 16 GB or more"."""
        if self.name is not None:
            return gpu_words(self.name, self.count, self.memory_gb)
        gpus = "1 GPU" if self.count == 1 else f"{self.count} GPUs"
        return f"{gpus} of {self.memory_gb} GB or more"


def gpu_words(name: str, count: int, memory_gb: int | None) -> str:
    """The GPUs of one machine as people read them: "8 × A100 80 GB"; memory_gb None: any."""
    return f"{count} × {name}" + ("" if memory_gb is None else f" {memory_gb} GB")


def parse_gpu_choice(text: object) -> GpuChoice:
    """One choice from its text. Raises InvalidValue saying how to write it."""
    if not isinstance(text, str):
        raise InvalidValue(f"must be text; {_HOW}")
    if text.strip().lower() in {"cpu", "none", ""}:
        raise InvalidValue(
            f"asks for no GPU; leave resources.gpu out for the smallest that fits, or {_HOW}"
        )
    head, *rest = text.strip().split(":")
    by_memory = _MEMORY.fullmatch(head)
    if by_memory is not None:
        if by_memory[2] is None:
            raise InvalidValue(
                f"gives memory without a GPU name; write {head}.. for at least {head}"
            )
        return GpuChoice(None, _memory_gb(by_memory[1]), _count(rest))
    # A100-80GB is how others write A100:80GB.
    joined = _VARIANT.fullmatch(head.upper())
    if joined is not None:
        head, rest = joined[1], [joined[2], *rest]
    if _NAME.fullmatch(head) is None or len(rest) > 2:
        raise InvalidValue(f"is not a GPU; {_HOW}")
    name = _known_name(head)
    variant = _MEMORY.fullmatch(rest[0]) if rest else None
    if variant is None:
        _refuse_bare_memory(name, rest)
        return GpuChoice(name, None, _count(rest))
    if variant[2]:
        raise InvalidValue(f"gives a GPU name and a memory range; {_HOW}")
    return GpuChoice(name, _variant_gb(name, variant[1]), _count(rest[1:]))


def _known_name(written: str) -> str:
    name = _PLAIN_NAMES.get(written.upper().replace("-", ""))
    if name is None:
        near = difflib.get_close_matches(written.upper(), GPU_NAMES, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidValue(f"is not a known GPU; known: {', '.join(GPU_NAMES)}{hint}")
    return name


def _variant_gb(name: str, digits: str) -> int:
    memory_gb = _memory_gb(digits)
    sizes = [model.memory_gb for model in models_of(name)]
    if memory_gb not in sizes:
        offered = " or ".join(f"{size}GB" for size in sizes)
        raise InvalidValue(f"asks for a {name} with {memory_gb}GB; it comes with {offered}")
    return memory_gb


def _refuse_bare_memory(name: str, rest: list[str]) -> None:
    """Raises InvalidValue where a number can only be meant as a memory size of that GPU."""
    if not rest or _COUNT.fullmatch(rest[0]) is None:
        return
    digits, *count = rest
    can_be_count = not count and int(digits) <= MAX_GPUS_PER_NODE
    if not can_be_count and int(digits) in [model.memory_gb for model in models_of(name)]:
        written = ":".join([name, f"{int(digits)}GB", *count])
        raise InvalidValue(f"gives the memory of a GPU without its unit; write {written}")


def parse_gpu_choices(value: object) -> tuple[GpuChoice, ...]:
    """The acceptable shapes from one text, a list of texts, or a mapping {"V100": 1}.

    Any of them will do, so their order means nothing and they come back sorted by their text.
    Raises InvalidValue when empty, too many, written twice, or not readable.
    """
    if isinstance(value, dict):
        texts: list[object] = [_mapping_text(key, count) for key, count in value.items()]
    elif isinstance(value, list | tuple):
        texts = list(value)
    else:
        texts = [value]
    if not 1 <= len(texts) <= MAX_GPU_CHOICES:
        raise InvalidValue(f"must name 1 to {MAX_GPU_CHOICES} kinds of GPU")
    choices = tuple(parse_gpu_choice(text) for text in texts)
    if len(set(choices)) != len(choices):
        raise InvalidValue("names the same GPU twice; keep one of them")
    return tuple(sorted(choices, key=str))


def _mapping_text(key: object, count: object) -> str:
    if not isinstance(key, str) or isinstance(count, bool) or not isinstance(count, int):
        raise InvalidValue(f"as a mapping must be like {{V100: 1}}; {_HOW}")
    return f"{key}:{count}" if 0 <= count <= MAX_GPU_MEMORY_GB else f"{key}:0"


def _memory_gb(digits: str) -> int:
    memory_gb = int(digits)
    if not 1 <= memory_gb <= MAX_GPU_MEMORY_GB:
        raise InvalidValue(f"memory must be 1GB to {MAX_GPU_MEMORY_GB}GB")
    return memory_gb


def _count(rest: list[str]) -> int:
    if not rest:
        return 1
    if len(rest) > 1 or _COUNT.fullmatch(rest[0]) is None:
        raise InvalidValue(f"is not a GPU; {_HOW}")
    count = int(rest[0])
    if not 1 <= count <= MAX_GPUS_PER_NODE:
        raise InvalidValue(f"the number of GPUs per machine must be 1 to {MAX_GPUS_PER_NODE}")
    return count
