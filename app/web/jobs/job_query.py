"""A search of the jobs page as its address has it: read, checked and written again.

Here: what people may write, and one sentence for what they may not. Not here: what is found
(`job_list`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from app.domain.lifecycle.job import LIVE_JOB_STATES, TERMINAL_JOB_STATES, JobState
from app.domain.spec.names import NAME_LENGTH_MAX
from app.domain.spec.spec_value import nearest
from app.storage.reports.job_search import CONSIDERED_MAX, JobOrder, JobSearch

ROWS_MAX: Final = 50
"""Rows of a page."""
STATE_GROUPS: Final[Mapping[str, frozenset[JobState]]] = {
    "all": frozenset(),
    "live": LIVE_JOB_STATES,
    "ended": TERMINAL_JOB_STATES,
}
ORDER_WORDS: Final = {
    JobOrder.STATE: "running first",
    JobOrder.NEWEST: "newest first",
    JobOrder.OLDEST: "oldest first",
    JobOrder.NAME: "by name",
    JobOrder.COST: "most spent first",
    JobOrder.RATE: "highest $/h first",
}
_PARAMETERS: Final = ("state", "name", "label", "sort", "group", "prefix", "page")
_GROUPINGS: Final = {"name": True, "none": False}
_LABELS_MAX: Final = 8
_LABEL_MAX: Final = 300
_SHOWN_MAX: Final = 40


@dataclass(frozen=True)
class JobQuery:
    """A search as it was written. `problem`: why it cannot be carried out, None when it can.

    labels: (key, value); the value is None where any will do.
    """

    state: str = "all"
    name: str = ""
    prefix: str = ""
    labels: tuple[tuple[str, str | None], ...] = ()
    order: JobOrder = JobOrder.STATE
    grouped: bool = True
    page: int = 1
    problem: str | None = None

    @property
    def states(self) -> frozenset[JobState]:
        """States that are searched; empty means all."""
        found: set[JobState] = set()
        for word in self.state.split(","):
            found |= STATE_GROUPS[word] if word in STATE_GROUPS else {JobState(word)}
        return frozenset() if "all" in self.state.split(",") else frozenset(found)

    @property
    def groups_now(self) -> bool:
        """Whether rows are grouped: the jobs of one group are shown one by one."""
        return self.grouped and not self.prefix

    def search(self, project_id: UUID, now: datetime) -> JobSearch:
        """What the database is asked for; ValueError for a query with a problem."""
        if self.problem is not None:
            raise ValueError(self.problem)
        return JobSearch(
            project_id,
            datetime.combine(now.date(), time(), now.tzinfo),
            states=self.states,
            name=self.name,
            prefix=self.prefix,
            labels=dict(self.labels),
            order=self.order,
            grouped=self.groups_now,
            offset=(self.page - 1) * ROWS_MAX,
            limit=ROWS_MAX,
        )

    @property
    def text(self) -> str:
        """The query of its address, without the page."""
        return urlencode(list(self._fields()))

    @property
    def words(self) -> str:
        """What is searched for, for people."""
        said = [] if self.state == "all" else [f"state {self.state}"]
        said += [f"name “{self.name}”"] if self.name else []
        said += [f"names {self.prefix}-…"] if self.prefix else []
        said += [f"label {label_text(name, value)}" for name, value in self.labels]
        return ", ".join(said) or "this page"

    def address(self, path: str = "/jobs", **changes: Any) -> str:
        """The address of this search with changes: another one's first page, unless told."""
        changed = replace(self, **{"page": 1, **changes})
        fields = list(changed._fields())
        if changed.page > 1:
            fields.append(("page", str(changed.page)))
        return f"{path}?{urlencode(fields)}" if fields else path

    def with_label(self, name: str, value: str) -> str:
        """The address of this search among the jobs that have this label, too."""
        others = tuple(one for one in self.labels if one[0] != name)
        return self.address(labels=(*others, (name, value)))

    def without_label(self, name: str) -> str:
        """The address of this search without a label."""
        return self.address(labels=tuple(one for one in self.labels if one[0] != name))

    def _fields(self) -> Iterator[tuple[str, str]]:
        if self.state != "all":
            yield "state", self.state
        if self.name:
            yield "name", self.name
        if self.prefix:
            yield "prefix", self.prefix
        for name, value in self.labels:
            yield "label", label_text(name, value)
        if self.order is not JobOrder.STATE:
            yield "sort", self.order.value
        if not self.grouped:
            yield "group", "none"


def read_query(given: Sequence[tuple[str, str]]) -> JobQuery:
    """The search that an address or a form asks for; a field that no search has is a problem."""
    # Nothing stored holds a NUL, and the database refuses to be asked for one.
    plain = [(name, value.replace("\0", "").strip()) for name, value in given]
    values = dict(plain)
    labels = [value for name, value in plain if name == "label" and value]
    problems = [
        _parameter_problem(values),
        _state_problem(values.get("state", "")),
        _choice_problem("sort", values.get("sort", ""), [one.value for one in JobOrder]),
        _choice_problem("group", values.get("group", ""), list(_GROUPINGS)),
        _page_problem(values.get("page", "")),
        _labels_problem(labels),
    ]
    problem = next((one for one in problems if one is not None), None)
    if problem is not None:
        return JobQuery(problem=problem)
    pairs: dict[str, str | None] = {}
    for name, value in map(_split, labels):
        pairs[name] = pairs.get(name) if value is None else value
    return JobQuery(
        state=_state_words(values.get("state", "")),
        name=values.get("name", "").lower()[:NAME_LENGTH_MAX],
        prefix=values.get("prefix", "")[:NAME_LENGTH_MAX],
        labels=tuple(pairs.items()),
        order=JobOrder(values.get("sort") or JobOrder.STATE),
        grouped=_GROUPINGS[values.get("group") or "name"],
        page=int(values.get("page") or 1),
    )


def _parameter_problem(names: Iterable[str]) -> str | None:
    """Ignored, it would make of a search the list of all jobs."""
    for name in names:
        if name not in _PARAMETERS:
            meant = nearest(name, _PARAMETERS) or f". Use one of {', '.join(_PARAMETERS)}."
            return f"There is no parameter “{name[:_SHOWN_MAX]}”{meant}"
    return None


def _state_words(written: str) -> str:
    return ",".join(word.strip().lower() for word in written.split(",") if word.strip()) or "all"


def _state_problem(written: str) -> str | None:
    known = [*STATE_GROUPS, *(state.value for state in JobState)]
    for word in _state_words(written).split(","):
        if word not in known:
            return f"There is no state “{word[:_SHOWN_MAX]}”. Use one of {', '.join(known)}."
    return None


def _choice_problem(name: str, written: str, known: Sequence[str]) -> str | None:
    if not written or written in known:
        return None
    return f"{name}={written[:_SHOWN_MAX]} is not known. Use one of {', '.join(known)}."


def _page_problem(written: str) -> str | None:
    last = -(-2 * CONSIDERED_MAX // ROWS_MAX)
    digits = written.isascii() and written.isdecimal() and len(written) <= len(str(last))
    if not written or (digits and 1 <= int(written) <= last):
        return None
    return f"page={written[:_SHOWN_MAX]} is not a page. Use a number from 1 to {last}."


def _labels_problem(labels: Sequence[str]) -> str | None:
    if len(labels) > _LABELS_MAX:
        return f"The address has {len(labels)} labels. Use at most {_LABELS_MAX}."
    for label in labels:
        if not _split(label)[0] or len(label) > _LABEL_MAX:
            return (
                f"“{label[:_SHOWN_MAX]}” is not a label. Write it as key=value, as in team=vision, "
                "or the key alone for any value."
            )
    values: dict[str, str] = {}
    for name, value in map(_split, labels):
        if value is None:
            continue
        if values.setdefault(name, value) != value:
            return (
                f"The label “{name[:_SHOWN_MAX]}” is searched with two values, "
                f"“{values[name][:_SHOWN_MAX]}” and “{value[:_SHOWN_MAX]}”, and a job has only one "
                "of them. Leave one out."
            )
    return None


def label_text(name: str, value: str | None) -> str:
    """A label as it is written into the search: key=value, or the key alone for any value."""
    return name if value is None else f"{name}={value}"


def _split(label: str) -> tuple[str, str | None]:
    """Key and value; None where only a key is written."""
    name, separator, value = label.partition("=")
    return name.strip(), value.strip() if separator else None
