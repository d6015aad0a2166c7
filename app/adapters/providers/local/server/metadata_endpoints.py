"""The metadata endpoints of all machines: one loopback port each, on the cloud's event loop."""

from __future__ import annotations

import asyncio

from app.adapters.providers.local.files import durable_files
from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.server.ec2_metadata import Ec2Metadata
from app.adapters.providers.local.server.gce_metadata import GceMetadata
from app.adapters.providers.local.server.http_server import protocol_for


class MetadataEndpoints:
    """Opens, tells of changes, closes."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[asyncio.Server, Ec2Metadata | GceMetadata]] = {}

    async def open(self, machine: Machine) -> None:
        """Serve the machine's metadata; without its port the machine runs on, and the log says so.

        A real machine without metadata is a rare fault, but one that happens.
        """
        served = GceMetadata(machine) if machine.is_gce else Ec2Metadata(machine)
        try:
            server = await asyncio.get_running_loop().create_server(
                protocol_for(served.answer), "127.0.0.1", machine.metadata_port
            )
        except OSError as error:
            durable_files.say(f"{machine.machine_id}: no metadata: {error}")
            return
        self._open[machine.machine_id] = (server, served)

    def changed(self, machine: Machine) -> None:
        """Wake readers that wait for a change."""
        _, served = self._open.get(machine.machine_id, (None, None))
        if isinstance(served, GceMetadata):
            served.changed()

    def close(self, machine: Machine) -> None:
        """Stop serving."""
        server, _ = self._open.pop(machine.machine_id, (None, None))
        if server is not None:
            server.close()
