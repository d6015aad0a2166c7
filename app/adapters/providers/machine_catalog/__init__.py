"""The shipped machine catalogs, and newer ones that a refresh has put in the state folder.

Here: where the documents lie, and which of two counts. Not here: their shape
(`app.domain.market.machine_catalog`), or asking a cloud for its types (each provider's own folder).
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Final

from app.adapters.embedded.processes.state_folder import write_atomically
from app.domain.market.machine_catalog import MachineCatalog, read_catalog
from app.domain.units.errors import InvalidValue

CATALOG_PROVIDERS: Final = ("aws", "gcp")
REFRESHED_FOLDER: Final = "machine_catalog"
_SHIPPED: Final = Path(__file__).parent


@functools.cache
def shipped_catalog(provider: str) -> MachineCatalog:
    """The catalog that came with this release. Raises LookupError for an unknown provider."""
    if provider not in CATALOG_PROVIDERS:
        raise LookupError(f"there is no machine catalog of {provider!r}")
    return _read(_SHIPPED / f"{provider}.json")


def load_catalog(provider: str, state_dir: Path | None = None) -> MachineCatalog:
    """The refreshed catalog in the state folder where it is as new as the shipped one, else that.

    Raises LookupError for an unknown provider, InvalidValue for a refreshed file that is damaged.
    """
    shipped = shipped_catalog(provider)
    if state_dir is None:
        return shipped
    path = state_dir / REFRESHED_FOLDER / f"{provider}.json"
    try:
        refreshed = _read(path)
    except FileNotFoundError:
        return shipped
    return refreshed if refreshed.as_of >= shipped.as_of else shipped


def save_catalog(catalog: MachineCatalog, state_dir: Path) -> Path:
    """Keep a refreshed catalog in the state folder, where `load_catalog` finds it: its path."""
    folder = state_dir / REFRESHED_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{catalog.provider}.json"
    write_atomically(path, json.dumps(catalog.to_json(), indent=1) + "\n", 0o644)
    return path


def _read(path: Path) -> MachineCatalog:
    text = path.read_text("utf-8")
    try:
        return read_catalog(json.loads(text))
    except (json.JSONDecodeError, InvalidValue) as error:
        raise InvalidValue(
            f"the machine catalog {path} cannot be used: {error}; delete it and refresh again"
        ) from error
