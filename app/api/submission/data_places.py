"""Where data of jobs may lie, so that no job reaches what is another's.

A deployment's own store and every place of checkpoints hold what belongs to single jobs: lineages,
logs, packed folders. Inputs and outputs may lie there only in `data/<project>`, and checkpoints
never in `data`. Of two places of which one lies in the other, the deeper one counts: so a setting
may give a folder within a place of checkpoints to data. Not here: the sentences to people
(`spec_places`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from app.settings import Settings

DATA_FOLDER = "data"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class DeploymentPlaces:
    """What the settings say of addresses.

    checkpoint_roots, checkpoint_buckets: where a job's own checkpoints may lie. data: where inputs
    and outputs may. own: the deployment's store and its checkpoints, which jobs may not name.
    """

    checkpoint_roots: Collection[Path] = ()
    checkpoint_buckets: Collection[str] = ()
    data: Collection[str] = ()
    own: Collection[str] = ()

    @classmethod
    def of(cls, settings: Settings) -> DeploymentPlaces:
        """Those of a deployment."""
        return cls(
            settings.checkpoint_roots,
            settings.checkpoint_buckets,
            settings.data_places,
            (settings.object_store_uri, settings.checkpoint_uri, settings.audit_seals),
        )

    @property
    def kept(self) -> frozenset[str]:
        """Every place that holds what belongs to single jobs."""
        roots = (root.absolute().as_uri() for root in self.checkpoint_roots)
        return frozenset({*self.own, *self.checkpoint_buckets, *roots})


def data_folder(project_name: str, project_id: UUID | None) -> str:
    """The folder of a project's data in a place of checkpoints: its name, or else its id.

    A name that looks like an id counts as none, as it may be the id of another project.
    """
    named = _NAME.fullmatch(project_name) is not None and _ID.fullmatch(project_name) is None
    return f"{DATA_FOLDER}/{project_name if named or project_id is None else project_id}"


def place_to_use(places: DeploymentPlaces, uri: str, folder: str, *, reads: bool) -> str | None:
    """None where data of a project may lie at `uri`; else where in that place they may.

    folder: of `data_folder`. reads: the whole of it is read, so nothing of others may lie below.
    Raises LookupError where no data may lie anywhere near.
    """
    allowed = _holding(uri, places.data)
    if not allowed:
        raise LookupError
    kept = _holding(uri, places.kept, loosely=True)
    if kept and len(kept[0][1]) <= len(allowed[0][1]):
        # Of places within one another the outermost alone has a folder for data.
        outermost, below = kept[-1]
        wanted = tuple(folder.split("/"))
        if kept[0][1] != below or below[: len(wanted)] != wanted:
            return f"{outermost}/{folder}"
    within = [one for one in places.kept if below_place(one, uri, loosely=True) is not None]
    if reads and within:
        return f"{min(within, key=len)}/{folder}"
    return None


def why_no_checkpoints(places: DeploymentPlaces, uri: str) -> str | None:
    """Why a job's checkpoints may not lie at `uri`, which is in an allowed place; None if they may.

    A lineage within another job's folder could add fences to that one.
    """
    kept = _holding(uri, places.kept, loosely=True)
    # A folder is also judged by where its links lead.
    reached = (part for _, below in kept for part in below)
    if any(_ID.fullmatch(part) for part in (*uri.split("/"), *reached)):
        return "is named after a job, and a job's folder belongs to that job alone"
    data = _holding(uri, places.data, loosely=True)
    if kept and data and len(data[0][1]) < len(kept[0][1]):
        return f"is in {data[0][0]}, which LOWTIDE_DATA_PLACES reserves for data"
    for place, below in kept:
        first = below[0] if below else ""
        if DATA_FOLDER in (first, _folded(first) if uri.startswith("file://") else first):
            return f"is in {place}/{DATA_FOLDER}, which is reserved for inputs and outputs"
    return None


def below_place(uri: str, place: str, *, loosely: bool = False) -> tuple[str, ...] | None:
    """The folders by which an address lies below a place, none if it is the place; None outside.

    By whole names: `a/b` does not lie in `a/bc`. Keys of buckets are compared by their bytes, so
    that look-alikes are others. Folders are compared as they really lie, links resolved.
    loosely: also as a file system sees them that knows no case, and by identity: for places that
    must not be reached.
    """
    if place.startswith("file://") != uri.startswith("file://"):
        return None
    if place.startswith("file://"):
        try:
            return _below_folder(_folder(uri).resolve(), _folder(place).resolve(), loosely)
        except (OSError, RuntimeError):
            return () if loosely else None
    inside, outside = uri.rstrip("/").split("/"), place.rstrip("/").split("/")
    if inside[: len(outside)] != outside or (not loosely and _is_odd(inside[len(outside) :])):
        return None
    return tuple(inside[len(outside) :])


def _is_odd(parts: Iterable[str]) -> bool:
    """Whether those who open a bucket's address may read another one than is written.

    They decode `%2e` and follow `..`, and what lies between two slashes may vanish.
    """
    return any("%" in part or part in ("", ".", "..") for part in parts)


def _holding(
    uri: str, places: Iterable[str], *, loosely: bool = False
) -> list[tuple[str, tuple[str, ...]]]:
    """The places that hold an address, the deepest first, each with what is below it."""
    found = ((one, below_place(uri, one, loosely=loosely)) for one in sorted(places))
    inside = [(one, below) for one, below in found if below is not None]
    return sorted(inside, key=lambda one: len(one[1]))


def _below_folder(here: Path, there: Path, loosely: bool) -> tuple[str, ...] | None:
    if here.is_relative_to(there):
        return here.relative_to(there).parts
    if not loosely:
        return None
    base = tuple(map(_folded, there.parts))
    if tuple(map(_folded, here.parts))[: len(base)] == base:
        return here.parts[len(base) :]
    if there.exists():
        for above, folder in enumerate((here, *here.parents)):
            if folder.exists() and folder.samefile(there):
                return here.parts[len(here.parts) - above :]
    return None


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _folder(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))
