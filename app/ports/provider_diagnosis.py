"""What a provider may tell about itself: is it set up, and which machines it has.

Both protocols are optional: a provider that has the method has the ability. Not here: launching
and looking (`cloud_provider`), or how results are shown (`app.cli.server.doctor_command`).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from app.domain.deployment.check_result import CheckResult as CheckResult
from app.domain.deployment.check_result import clock_check as clock_check
from app.domain.deployment.check_result import warning as warning
from app.domain.market.machine_catalog import MachineType


@runtime_checkable
class ProviderDiagnosis(Protocol):
    """A provider that can check its own set-up."""

    def diagnose(self) -> tuple[CheckResult, ...]:
        """Credentials, permissions (dry-run calls), quotas, subnets: one result each.

        Starts, changes and tags nothing. Bounded calls; a call that fails is a result that is
        not `ok`, never an exception that hides the others.
        """
        ...


@runtime_checkable
class MachineTypeSource(Protocol):
    """A provider that can list the machine types with GPUs that its regions offer."""

    def machine_types(self) -> tuple[MachineType, ...]:
        """Every type with GPUs that a configured region offers, by name.

        Raises ProviderError when the cloud cannot be asked. A type whose GPU
        `app.domain.market.gpu_catalog` does not know is left out.
        """
        ...
