"""The registry of controllers: read by the worker, by beat and by the simulator.

Lives here: which controllers there are, by name. Not here: what they do, or how they are run
(`controller_frame`).
"""

from __future__ import annotations

from app.orchestration.accrue_costs import AccrueCosts
from app.orchestration.check_books import CheckBooks
from app.orchestration.claim_jobs import ClaimJobs
from app.orchestration.clear_remains import ClearRemains
from app.orchestration.close_job_costs import CloseJobCosts
from app.orchestration.controller_frame import AnyController
from app.orchestration.enforce_budgets import EnforceBudgets
from app.orchestration.expire_deadlines import ExpireDeadlines
from app.orchestration.foresee_losses import ForeseeLosses
from app.orchestration.keep_estimates import KeepEstimates
from app.orchestration.launch_instances import LaunchInstances
from app.orchestration.locate_buckets import LocateBuckets
from app.orchestration.prune_checkpoints import PruneCheckpoints
from app.orchestration.read_interruptions import ReadInterruptions
from app.orchestration.read_pool_pasts import ReadPoolPasts
from app.orchestration.reconcile_instances import ReconcileInstances
from app.orchestration.refresh_prices import RefreshPrices
from app.orchestration.release_instances import ReleaseInstances
from app.orchestration.resize_gangs import ResizeGangs
from app.orchestration.runtime import Runtime
from app.orchestration.sweep_deployment import SweepDeployment
from app.orchestration.watch_contacts import WatchContacts
from app.orchestration.watch_deadlines import WatchDeadlines
from app.orchestration.weigh_moves import WeighMoves


def all_controllers(runtime: Runtime) -> tuple[AnyController, ...]:
    """Every controller, in the order in which a simulator breaks ties."""
    return (
        RefreshPrices(runtime),
        ClaimJobs(runtime),
        LaunchInstances(runtime),
        ReconcileInstances(runtime),
        ReleaseInstances(runtime),
        ExpireDeadlines(runtime),
        WatchContacts(runtime),
        WatchDeadlines(runtime),
        AccrueCosts(runtime),
        EnforceBudgets(runtime),
        CloseJobCosts(runtime),
        SweepDeployment(runtime),
        PruneCheckpoints(runtime),
        CheckBooks(runtime),
        ReadInterruptions(runtime),
        ClearRemains(runtime),
        LocateBuckets(runtime),
        ReadPoolPasts(runtime),
        KeepEstimates(runtime),
        ForeseeLosses(runtime),
        ResizeGangs(runtime),
        WeighMoves(runtime),
    )


def controllers_by_name(runtime: Runtime) -> dict[str, AnyController]:
    """The controllers under their names."""
    return {controller.name: controller for controller in all_controllers(runtime)}
