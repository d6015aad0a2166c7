"""Keep the agent that machines are rented for where every api of the deployment finds it.

A machine is told at its launch which agent it must run, by digest. While a deployment is upgraded,
worker and api are of different releases for a while: each worker's agent lies in the deployment's
object store, under its digest, before any machine is told of it. Not here: the wheel
(`app.adapters.agent_package`), or the route that hands it out (`app.api.agents.package_routes`).
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import Final

from app.ports.object_store import ObjectExists, ObjectStore, ObjectStoreError

log = logging.getLogger(__name__)

_FOLDER: Final = "agents"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def agent_key(filename: str, content: bytes) -> str:
    """Where an agent's wheel lies in the deployment's object store."""
    return f"{_FOLDER}/{hashlib.sha256(content).hexdigest()}/{filename}"


def publish_agent(store: ObjectStore, key: str, content: bytes) -> bool:
    """Store it under its `agent_key`; False when the store does not take it now.

    That stops no launch: an api of the same release needs no store for it.
    """
    try:
        store.put_new(key, content)
    except ObjectExists:
        return True
    except ObjectStoreError as error:
        log.warning("the agent of this release could not be stored as %s: %s", key, error)
        return False
    return True


def find_agent(store: ObjectStore, sha256: str) -> tuple[str, bytes] | None:
    """(filename, wheel) of a digest; None where no worker has stored such an agent.

    Raises ObjectStoreError.
    """
    if _DIGEST.fullmatch(sha256) is None:
        return None
    for key in store.list_keys(f"{_FOLDER}/{sha256}/"):
        content = store.get(key)
        if hashlib.sha256(content).hexdigest() == sha256:
            return key.rpartition("/")[2], content
    return None
