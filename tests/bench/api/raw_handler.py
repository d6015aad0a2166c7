"""The baseline of submitting: FastAPI, a pydantic model and one asyncpg insert, nothing else.

Run under uvicorn with the same options as the api; BENCH_DATABASE_URL names its database.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal

import asyncpg
from fastapi import FastAPI, Request
from pydantic import BaseModel

TABLE = """
CREATE TABLE raw_jobs (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    priority int NOT NULL,
    state text NOT NULL,
    spec jsonb NOT NULL,
    submitted_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON raw_jobs (priority DESC, submitted_at) WHERE state = 'queued';
CREATE INDEX ON raw_jobs (state, submitted_at DESC);
"""
_INSERT = """
INSERT INTO raw_jobs (id, name, priority, state, spec) VALUES ($1, $2, $3, 'queued', $4)
RETURNING submitted_at
"""
POOL_SIZE = 8


class Trainer(BaseModel):
    """What is trained."""

    model: str
    data: str
    steps: int
    batch_size: int
    learning_rate: float
    precision: Literal["fp32", "bf16", "fp16"]


class Resources(BaseModel):
    """What it needs."""

    gpu: str


class CheckpointRule(BaseModel):
    """How often it is saved."""

    interval: str
    keep: int


class RawJob(BaseModel):
    """A job's spec."""

    project: str
    priority: int
    trainer: Trainer
    nodes: int
    resources: Resources
    market: str
    infra: list[str]
    max_price_ratio: float
    deadline: str
    on_deadline: str
    budget_usd: float
    max_duration: str
    max_wait: str
    retries: int
    stall_timeout: str
    checkpoint: CheckpointRule
    env: dict[str, str]
    labels: dict[str, str]


class Accepted(BaseModel):
    """The answer."""

    id: uuid.UUID
    state: str
    submitted_at: datetime


@asynccontextmanager
async def _pool(app: FastAPI) -> AsyncIterator[None]:
    url = os.environ["BENCH_DATABASE_URL"]
    async with asyncpg.create_pool(url, min_size=POOL_SIZE, max_size=POOL_SIZE) as pool:
        app.state.pool = pool
        yield


app = FastAPI(lifespan=_pool)


@app.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether it runs."""
    return {"status": "ok"}


@app.post("/jobs", status_code=201)
async def submit(request: Request, job: RawJob) -> Accepted:
    """Store one row."""
    job_id = uuid.uuid4()
    async with request.app.state.pool.acquire() as connection:
        submitted_at = await connection.fetchval(
            _INSERT, job_id, job_id.hex, job.priority, job.model_dump_json()
        )
    return Accepted(id=job_id, state="queued", submitted_at=submitted_at)
