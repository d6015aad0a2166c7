"""The signed-in caller as a parameter of routes: `caller: SignedIn`.

Not here: how a key is known (`key_ring`).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from app.api.serving.api_parts import parts_of
from app.api.serving.key_ring import Caller


async def require_caller(request: Request) -> Caller:
    """The caller; 401 without a good key."""
    return await parts_of(request).keys.caller(request.headers.get("authorization"))


SignedIn = Annotated[Caller, Depends(require_caller)]
"""Parameter of a route that needs a key."""

__all__ = ["Caller", "SignedIn", "require_caller"]
