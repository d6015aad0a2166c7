"""The kinds of value that a job spec has of its own: nodes, deadline, budget, env, places.

Each is an annotated type; its reader says what is accepted and in which words it is refused. Which
field has which kind, and the rules between fields, live in job_spec_fields and job_spec.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from app.domain.market.gpu_choice import GpuChoice, parse_gpu_choice, parse_gpu_choices
from app.domain.spec.infra_choice import InfraChoice, parse_infra_choices
from app.domain.spec.node_range import NodeRange
from app.domain.spec.spec_value import (
    Written,
    checked_text,
    kind_of,
    matching,
    refusal,
    unknown_word,
)
from app.domain.units.durations import DAY_SECONDS, duration_text, exact_duration, parse_duration
from app.domain.units.money import parse_usd, usd_text

MAX_NODES = 64
MAX_CPUS = 1_024
MAX_MEMORY_GB = 65_536
MIN_BUDGET_MICROUSD = 10_000
RESERVED_ENV_PREFIX = "LOWTIDE_"

_NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?", re.ASCII)
_BUCKET_URI = re.compile(r"(?:s3|gs)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](?:/[^\s?#]*)?", re.ASCII)
_FILE_URI = re.compile(r"file://(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._@+=,-]+)+/?", re.ASCII)
_ELASTIC = re.compile(r"([0-9]{1,4})\.\.([0-9]{1,4})", re.ASCII)
_DASHED_RANGE = re.compile(r"([0-9]{1,4}) ?- ?([0-9]{1,4})", re.ASCII)
_CPUS = re.compile(r"([0-9]{1,5})\+?", re.ASCII)
_MEMORY = re.compile(r"([0-9]{1,6})(GB|TB)\+?", re.ASCII | re.IGNORECASE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_MAX_ENV, _MAX_ENV_VALUE, _MAX_ENV_TOTAL = 64, 8_192, 32_768
_MAX_LABELS, _MAX_LABEL_VALUE = 32, 128
_MAX_EXIT_CODES = 32
_MAX_CHANNELS = 10
_CHANNELS_HOW = "write [team], and set the channel with `lowtide notification set team`"
_DEADLINE_HOW = "write 36h, or a time with its zone like 2031-05-01T18:00:00Z"


def _not_number(value: int) -> str:
    return f", not {value:,}" if abs(value) < 10**18 else ""


def _read_node_count(value: object) -> int:
    if isinstance(value, str):
        number = value.strip()
        quoted = number.isascii() and number.isdecimal() and len(number) <= len(str(MAX_NODES))
        advice = f"{number} without quotes" if quoted else "a whole number, like 2"
        if dashed := _DASHED_RANGE.fullmatch(value):
            advice = f"{dashed[1]}..{dashed[2]} for a gang whose size may change"
        raise refusal(f"{value[:40]!r} is not a number of machines; write {advice}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise refusal(f"must be a whole number of machines, like 2, not {kind_of(value)}")
    if not 1 <= value <= MAX_NODES:
        raise refusal(f"must be between 1 and {MAX_NODES}{_not_number(value)}")
    return value


def _read_nodes(value: object) -> NodeRange:
    span = _ELASTIC.fullmatch(value.strip()) if isinstance(value, str) else None
    if span is None:
        count = _read_node_count(value)
        return NodeRange(count, count)
    least, most = int(span[1]), int(span[2])
    if not 1 <= least <= most <= MAX_NODES:
        raise refusal(f"must be a rising range within 1..{MAX_NODES}, like 2..4")
    return NodeRange(least, most)


def _read_cpus(value: object) -> int:
    """The least number of CPUs, from 8 or "8+"."""
    written = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    parts = _CPUS.fullmatch(written.strip()) if isinstance(written, str) else None
    if parts is None:
        raise refusal(f"must be the least number of CPUs, like 8+, not {kind_of(value)}")
    if not 1 <= int(parts[1]) <= MAX_CPUS:
        raise refusal(f"must be between 1 and {MAX_CPUS:,}, not {int(parts[1]):,}")
    return int(parts[1])


def _read_memory_gb(value: object) -> int:
    """The least memory in GB, from "64GB", "64GB+" or "1TB"."""
    parts = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if parts is None:
        raise refusal(f"must be the least memory, like 64GB+, not {kind_of(value)}")
    memory_gb = int(parts[1]) * (1_000 if parts[2].upper() == "TB" else 1)
    if not 1 <= memory_gb <= MAX_MEMORY_GB:
        raise refusal(f"must be 1GB to {MAX_MEMORY_GB}GB")
    return memory_gb


def _read_deadline(value: object) -> timedelta | datetime:
    if isinstance(value, str) and "-" in value.strip()[1:]:
        return _read_time(value.strip())
    if isinstance(value, str) and not value.strip()[:1].isdigit() and value.strip()[:1] != "-":
        raise refusal(f"{value[:60]!r} is neither a duration nor a time; {_DEADLINE_HOW}")
    return timedelta(seconds=parse_duration(value, at_least_seconds=1))


def _read_time(written: str) -> datetime:
    how = _DEADLINE_HOW
    try:
        time = datetime.fromisoformat(written)
    except ValueError as error:
        raise refusal(f"{written[:60]!r} is not a time; {how}") from error
    if time.tzinfo is None:
        whole = time.isoformat().removesuffix(":00")
        raise refusal(
            f"{written[:60]!r} has no time zone; write {whole}Z for UTC, or end it with yours, as "
            f"in {whole}+02:00"
        )
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise refusal(f"{written[:60]!r} is not a date; {how}") from error


def _store_deadline(value: timedelta | datetime) -> str:
    if isinstance(value, timedelta):
        return duration_text(int(value.total_seconds()))
    return value.isoformat().replace("+00:00", "Z")


def _read_budget(value: object) -> int:
    return parse_usd(value, at_least_microusd=MIN_BUDGET_MICROUSD)


def _read_workdir(value: object) -> str:
    digest = checked_text(value, 4_096)
    if _DIGEST.fullmatch(digest) is None:
        raise refusal(
            f"{digest[:60]!r} is a path on your machine; `lowtide submit` packs it, or give the "
            "packed folder as sha256:<64 hex digits>"
        )
    return digest


def _read_checkpoint_uri(value: object) -> str:
    uri = checked_text(value, 1_024)
    if _BUCKET_URI.fullmatch(uri) is None and _FILE_URI.fullmatch(uri) is None:
        raise refusal(
            f"{uri[:60]!r} is not accepted; write s3://bucket/path, gs://bucket/path or "
            "file:///a/folder, or leave it out"
        )
    return uri.rstrip("/")


def _read_interval(value: object) -> int | None:
    """None is "auto"; a day at most, as the trainer has it."""
    if value == "auto":
        return None
    seconds = parse_duration(value, at_least_seconds=1)
    if seconds > DAY_SECONDS:
        raise refusal(f"must be a day at most, not {exact_duration(seconds)}")
    return seconds


def _read_market(value: object) -> str:
    known = ("auto", "spot", "on_demand")
    if value == "on-demand":
        return "on_demand"
    if isinstance(value, str) and value in known:
        return value
    raise unknown_word("market", value, known)


def _read_kept(value: object) -> int:
    if value == 0 and not isinstance(value, bool):
        return 0
    return parse_duration(value)


def _read_exit_codes(value: object) -> tuple[int, ...]:
    codes = value if isinstance(value, list | tuple) else [value]
    if len(codes) > _MAX_EXIT_CODES:
        raise refusal(f"must list at most {_MAX_EXIT_CODES} exit codes")
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, int) or not 1 <= code <= 255:
            raise refusal(f"must list whole numbers from 1 to 255, not {kind_of(code)}")
    return tuple(sorted(set(codes)))


def _read_channels(value: object) -> tuple[str, ...] | None:
    """In the order of their names; None for an empty list, which asks for nothing."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise refusal(f"must list channels of the project, not {kind_of(value)}; {_CHANNELS_HOW}")
    if len(names) > _MAX_CHANNELS:
        raise refusal(f"must name at most {_MAX_CHANNELS} channels, not {len(names)}")
    for name in names:
        if not isinstance(name, str):
            raise refusal(f"must list names of channels, not {kind_of(name)}; {_CHANNELS_HOW}")
        if re.fullmatch(_NAME, name, re.ASCII) is None:
            # It may be the address of a webhook, which is a secret.
            raise refusal(f"has a text that is no name of a channel; {_CHANNELS_HOW}")
    return tuple(sorted(set(names))) or None


def _read_env(value: object) -> dict[str, str]:
    env = _read_texts(value, "variables", _MAX_ENV)
    for name, content in env.items():
        if _ENV_NAME.fullmatch(name) is None:
            raise refusal(f"{name[:40]!r} is not a variable name; use letters, digits and _")
        if name.upper().startswith(RESERVED_ENV_PREFIX):
            raise refusal(
                f"names starting with {RESERVED_ENV_PREFIX} are set by Lowtide; rename it", name
            )
        # The value is never shown: people put tokens here.
        if content.strip():
            _checked_entry(name, content, _MAX_ENV_VALUE, lines=True)
    if sum(len(name) + len(content) for name, content in env.items()) > _MAX_ENV_TOTAL:
        raise refusal(f"must be at most {_MAX_ENV_TOTAL:,} characters in all")
    return env


def read_labels(value: object) -> dict[str, str]:
    """Labels with their values; raises a refusal for names and values that are none."""
    labels = _read_texts(value, "labels", _MAX_LABELS)
    for name, content in labels.items():
        if _LABEL_NAME.fullmatch(name) is None:
            raise refusal(f"{name[:40]!r} is not a label name; use letters, digits and . _ - /")
        _checked_entry(name, content, _MAX_LABEL_VALUE, lines=False)
    return labels


def _checked_entry(name: str, content: str, max_length: int, *, lines: bool) -> None:
    try:
        checked_text(content, max_length, lines=lines)
    except ValueError as error:
        raise refusal(str(error), name) from error


def _read_texts(value: object, noun: str, max_entries: int) -> dict[str, str]:
    """A mapping of texts, by name; whole numbers are taken as their digits."""
    if not isinstance(value, dict):
        raise refusal(f"must be a mapping of {noun}, not {kind_of(value)}")
    if len(value) > max_entries:
        raise refusal(f"must have at most {max_entries} {noun}, not {len(value)}")
    texts: dict[str, str] = {}
    for name, content in value.items():
        if not isinstance(name, str):
            raise refusal(f"names must be text, not {kind_of(name)}")
        whole = isinstance(content, int) and not isinstance(content, bool)
        if not isinstance(content, str) and not (whole and abs(content) < 10**18):
            raise refusal(f"{name[:40]!r} must be text, not {kind_of(content)}; quote it")
        texts[name] = str(content)
    return dict(sorted(texts.items()))


def _store_list(values: tuple[object, ...]) -> list[str]:
    return [str(value) for value in values]


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_TEXT_MAP = {"type": "object", "additionalProperties": _TEXT}
_GPU_FORMS = {
    "anyOf": [_TEXT, _TEXTS, {"type": "object", "additionalProperties": {"type": "integer"}}],
    "examples": ["V100", "A100:80GB:8", "40GB..", ["A10G:1", "L4:1"]],
}
_NODE_COUNT_FORM = {"type": "integer", "minimum": 1, "maximum": MAX_NODES}
_NODES_FORM = {
    "anyOf": [_NODE_COUNT_FORM, {**_TEXT, "pattern": f"^{_ELASTIC.pattern}$"}],
    "examples": [2, "2..4"],
}
_DEADLINE_FORM = {"type": "string", "examples": ["36h", "2031-05-01T18:00:00Z"]}
_BUDGET_FORM = {"anyOf": [{"type": "number"}, _TEXT], "examples": [25, "25.50", "$25"]}
_MARKET_FORM = {"type": "string", "enum": ["auto", "spot", "on_demand"]}
_PLACES_FORM = {"anyOf": [_TEXT, _TEXTS], "examples": [["aws", "gcp/us-central1"]]}
_CODES_FORM = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 255}}
_CHANNELS_FORM = {"type": "array", "items": {**_TEXT, "pattern": f"^(?:{_NAME})$"}}

JobName = Annotated[
    str,
    matching(
        _NAME,
        "use 1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end",
    ),
]
NodeCount = Annotated[int, Written(_read_node_count, _NODE_COUNT_FORM)]
Nodes = Annotated[NodeRange, Written(_read_nodes, _NODES_FORM, NodeRange.to_json)]
Deadline = Annotated[timedelta | datetime, Written(_read_deadline, _DEADLINE_FORM, _store_deadline)]
Budget = Annotated[int, Written(_read_budget, _BUDGET_FORM, usd_text)]
Workdir = Annotated[str, Written(_read_workdir, {**_TEXT, "pattern": f"^{_DIGEST.pattern}$"})]
CheckpointUri = Annotated[str, Written(_read_checkpoint_uri, _TEXT)]
CheckpointInterval = Annotated[
    int | None,
    Written(
        _read_interval,
        {**_TEXT, "examples": ["auto", "15m"]},
        lambda seconds: "auto" if seconds is None else duration_text(seconds),
    ),
]
Market = Annotated[Literal["auto", "spot", "on_demand"], Written(_read_market, _MARKET_FORM)]
ExitCodes = Annotated[tuple[int, ...], Written(_read_exit_codes, _CODES_FORM)]
Environment = Annotated[dict[str, str], Written(_read_env, _TEXT_MAP)]
KeptSeconds = Annotated[int, Written(_read_kept, {**_TEXT, "examples": ["30m"]}, duration_text)]
Labels = Annotated[dict[str, str], Written(read_labels, _TEXT_MAP)]
GpuChoices = Annotated[tuple[GpuChoice, ...], Written(parse_gpu_choices, _GPU_FORMS, _store_list)]
OneGpuChoice = Annotated[GpuChoice, Written(parse_gpu_choice, _TEXT, str)]
AtLeastCpus = Annotated[
    int,
    Written(
        _read_cpus,
        {"anyOf": [_TEXT, {"type": "integer", "minimum": 1}], "examples": ["8+", 8]},
        lambda cpus: f"{cpus}+",
    ),
]
AtLeastMemory = Annotated[
    int,
    Written(
        _read_memory_gb,
        {**_TEXT, "examples": ["64GB+", "1TB"]},
        lambda memory_gb: f"{memory_gb}GB+",
    ),
]
Places = Annotated[tuple[InfraChoice, ...], Written(parse_infra_choices, _PLACES_FORM, _store_list)]

ChannelNames = Annotated[tuple[str, ...] | None, Written(_read_channels, _CHANNELS_FORM)]
