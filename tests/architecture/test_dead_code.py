"""What no production code uses is deleted: found by vulture, which reads names, not types.

Names that a framework, a template or the wire uses are named here with the reason.
"""

import re
from pathlib import Path

from vulture import Vulture

from tests.support.sources.source_tree import ROOT

FOLDERS = ("app", "workers", "trainer", "migrations")

DECORATORS = (
    "@*.get", "@*.post", "@*.put", "@*.delete", "@*.head", "@*.patch", "@*.command", "@*.callback",
    "@*.middleware", "@*.exception_handler", "@shared_task", "@*.connect", "@event.listens_for",
    "@field_validator", "@model_validator", "@setup_logging.connect",
)  # fmt: skip
"""What they decorate is called by FastAPI, Typer, Celery, SQLAlchemy or pydantic."""

CALLED_FROM_OUTSIDE = {
    "model_config": "pydantic",
    "media_type": "Starlette's responses",
    "down_revision": "Alembic", "branch_labels": "Alembic", "depends_on": "Alembic",
    "impl": "SQLAlchemy's types", "cache_ok": "SQLAlchemy's types",
    "process_bind_param": "SQLAlchemy's types", "process_result_value": "SQLAlchemy's types",
    "dialect": "SQLAlchemy's types",
    "prepared_max": "psycopg's connection",
    "external_attr": "zipfile's ZipInfo", "create_system": "zipfile's ZipInfo",
    "LimitedHttp": "uvicorn, which is given its name", "timeout_keep_alive": "uvicorn's protocol",
    "default_headers": "uvicorn's protocol",
    "do_GET": "http.server", "log_message": "http.server",
    "total_tokens": "anyio's limiter", "openapi": "FastAPI",
    "MemoryScheduler": "Celery beat, which is given its name",
    "adjust": "Celery beat", "apply_entry": "Celery beat", "producer": "Celery beat",
    "collect_usage_pieces": "Typer's commands", "format_options": "Typer's commands",
    "DrainCallback": "the user's own script", "CheckpointCallback": "the user's own script",
    "resume_from": "the user's own script",
    "on_train_start": "Lightning", "on_train_batch_end": "Lightning", "should_stop": "Lightning",
    "on_step_end": "Transformers", "on_log": "Transformers", "on_save": "Transformers",
    "should_training_stop": "Transformers",
    "local_address": "httpcore's NetworkBackend", "socket_options": "httpcore's NetworkBackend",
    "readinto": "io.RawIOBase", "__class__": "isinstance",
    "__setitem__": "assignment", "_missing_": "Enum", "_value_": "Enum",
    "intra_op_num_threads": "ONNX Runtime's options",
    "benchmark": "torch.backends", "allow_tf32": "torch.backends",
    "numMetrics": "NVML's structure", "sample1": "NVML's structure",
    "sample2": "NVML's structure", "metricId": "NVML's structure",
}  # fmt: skip
"""Name: who calls or reads it."""

KEPT = {
    "sent_count": "tests and operators see by it whether rings reach Redis",
    "dropped_count": "as sent_count",
    "child_pid": "tests see by it that the parser's process was replaced",
    "local_disks": "a fact of the image that the shell code of its boot script rests on",
    "vendor": "says of a shipped figure whose it is",
    "created_by": "in the answer of GET /keys, which is made of all columns of its rows",
    "revoked_by": "as created_by",
    "max_hourly_spend_usd": "a key of stored limits, which pydantic reads by its alias",
    "person_id": "in the answer of GET /audit, which is made of all fields of its rows",
    "digest_before": "as person_id",
    "digest_after": "as person_id",
    "JSONL": "a form of `lowtide audit export`, chosen by word",
    "project_budget": "in the answer of GET /jobs/{job}/cost, which is made of all its fields",
    "useful_seconds": "as project_budget",
    "placement_scored_at": "in the answer of GET /offers, which is made of all columns of its rows",
    "preemption_rate_at": "as placement_scored_at",
    "rate_saved_ratio": "as project_budget",
    "num_nodes": "agents of the release before refuse a run without it",
    "checkpoint_keep": "as num_nodes",
    "agent_version": "agents of the release before send it",
    "keep_on_failure_seconds": "planned: refused with a sentence until then",
    "env_visible": "read of the stored spec, by its key",
    "ZONES": "a value of the back-test's setting, chosen by word",
    "ATTEMPTS": "a value of the back-test's setting, chosen by word",
    "probe_usd": "the back-test's own test tells probes from runs by it",
}
"""Name: why it stays although no production code reads it."""

TORCH_PRIVATE = "/broken_pass.py"
"""Sets torch's own attributes; checked against torch by its tests."""

WIRE = re.compile(
    r"app/(api/.*(shapes|document)\w*|domain/(spec/spec|projects/rules)_document)\.py$"
)
"""Response models and a stored spec: their fields are those of the documented REST answers and of
the job spec, held against them by tests."""

VALIDATORS = re.compile(r"app/(settings|domain/.*job_spec\w*|adapters/providers/.*variables)\.py$")
"""pydantic models: their private methods are validators."""


def _names_in_templates() -> set[str]:
    pages = (ROOT / "app/web").rglob("*.html")
    return {name for page in pages for name in re.findall(r"\w+", page.read_text("utf-8"))}


def _names_in_answers() -> set[str]:
    """Fields that the command line reads from the api's answers: `row["finish_at"]`."""
    sources = (ROOT / "app/cli").rglob("*.py")
    return {
        name
        for path in sources
        for name in re.findall(r"""\[["'](\w+)["']\]""", path.read_text("utf-8"))
    }


def test_every_name_has_a_production_caller() -> None:
    finder = Vulture(ignore_decorators=list(DECORATORS))
    finder.scavenge([str(ROOT / folder) for folder in FOLDERS])
    used = {*CALLED_FROM_OUTSIDE, *KEPT, *_names_in_templates(), *_names_in_answers()}
    dead = []
    for item in finder.get_unused_code(min_confidence=60):
        path = Path(item.filename).relative_to(ROOT).as_posix()
        is_field = item.typ == "variable" and WIRE.search(path)
        is_validator = item.name.startswith("_") and VALIDATORS.search(path)
        if item.name in used or path.endswith(TORCH_PRIVATE):
            continue
        if not is_field and not is_validator:
            dead.append(f"{path}:{item.first_lineno}: {item.typ} {item.name}")
    assert not dead, "no production code uses them:\n" + "\n".join(sorted(dead))


def test_names_that_are_kept_still_exist() -> None:
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text("utf-8"))}
    gone = {*CALLED_FROM_OUTSIDE, *KEPT} - words
    assert not gone, f"take them off the list: {sorted(gone)}"
