"""What the models of answers have in common, for OpenAPI and for whoever reads them.

Answers are written without these models, which would cost more than the answers; tests hold real
answers against them. Not here: the models, which are beside their routes.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """Every field is always there, and there is no other."""

    model_config = ConfigDict(extra="forbid")
