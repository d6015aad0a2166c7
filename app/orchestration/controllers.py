"""The registry of controllers: read by the worker, by beat and by the simulator.

Lives here: which controllers there are, by name. Not here: what they do, or how they are run
(`controller_frame`).
"""

from __future__ import annotations

from app.orchestration.agents.watch_contacts import WatchContacts
from app.orchestration.audit.seal_audit import SealAudit
from app.orchestration.checkpoints.prune_checkpoints import PruneCheckpoints
from app.orchestration.deployment.clear_leftovers import ClearLeftovers
from app.orchestration.deployment.sweep_deployment import SweepDeployment
from app.orchestration.estimates.keep_estimates import KeepEstimates
from app.orchestration.frame.controller_frame import AnyController
from app.orchestration.frame.runtime import Runtime
from app.orchestration.instances.launch_instances import LaunchInstances
from app.orchestration.instances.read_interruptions import ReadInterruptions
from app.orchestration.instances.reconcile_instances import ReconcileInstances
from app.orchestration.instances.release_instances import ReleaseInstances
from app.orchestration.market.read_pool_pasts import ReadPoolPasts
from app.orchestration.market.refresh_prices import RefreshPrices
from app.orchestration.money.accrue_costs import AccrueCosts
from app.orchestration.money.budget_months import ResumeForBudgets, WatchBudgetMonths
from app.orchestration.money.check_books import CheckBooks
from app.orchestration.money.close_job_costs import CloseJobCosts
from app.orchestration.money.enforce_budgets import EnforceBudgets
from app.orchestration.notifications.send_notifications import SendNotifications
from app.orchestration.notifications.watch_waits import WatchWaits
from app.orchestration.placement.locate_buckets import LocateBuckets
from app.orchestration.placement.refresh_hazards import RefreshHazards
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.transitions.evaluate_moves import EvaluateMoves
from app.orchestration.transitions.expire_deadlines import ExpireDeadlines
from app.orchestration.transitions.resize_gangs import ResizeGangs
from app.orchestration.transitions.watch_deadlines import WatchDeadlines


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
        ClearLeftovers(runtime),
        LocateBuckets(runtime),
        ReadPoolPasts(runtime),
        KeepEstimates(runtime),
        RefreshHazards(runtime),
        ResizeGangs(runtime),
        EvaluateMoves(runtime),
        SealAudit(runtime),
        SendNotifications(runtime),
        WatchWaits(runtime),
        WatchBudgetMonths(runtime),
        ResumeForBudgets(runtime),
    )


def controllers_by_name(runtime: Runtime) -> dict[str, AnyController]:
    """The controllers under their names."""
    return {controller.name: controller for controller in all_controllers(runtime)}
