"""What the models of answers have in common, for OpenAPI and for whoever reads them.

Answers are written without these models, which would cost more than the answers; tests hold real
answers against them. Not here: the models, which are beside their routes.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """Every field is always there, and there is no other."""

    model_config = ConfigDict(extra="forbid")


def fields_of(shape: type[Shape], source: object, **others: Any) -> dict[str, Any]:
    """The fields of `shape` in its order: those in `others`, the rest from `source` by their names.

    Nothing is validated: what an answer is made of was checked when it was stored.
    """
    unknown = others.keys() - shape.model_fields.keys()
    assert not unknown, f"{shape.__name__} has no {unknown}"
    return {
        name: others[name] if name in others else getattr(source, name)
        for name in shape.model_fields
    }
