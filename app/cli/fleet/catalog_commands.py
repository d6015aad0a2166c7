"""`lowtide catalog`: machine types with GPUs, what they carry, and how fast they should train.

Here: the commands on the catalogs of this machine. Not here: prices now (`offers`), the catalogs
themselves (`app.adapters.providers.machine_catalog`), or asking a cloud (its provider).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from app.adapters.system_clock import SystemClock
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.failures import UNREACHABLE, CommandFailed
from app.cli.client.local_command import AsJson, Quiet, StateDir, ending_well, settings_with
from app.cli.client.terminal import Column, Terminal
from app.domain.market.gpu_catalog import (
    CATALOG_DATE,
    GPU_MODELS,
    THROUGHPUT_SOURCE,
    Throughput,
    expected_throughput,
    model_of,
)
from app.domain.market.gpu_choice import GpuChoice, gpu_words, parse_gpu_choice
from app.domain.market.machine_catalog import MachineCatalog, MachineType, make_catalog
from app.domain.market.machine_need import is_choice
from app.domain.units.errors import InvalidValue
from app.settings import SettingsError

catalog = CommandList(
    cls=DefaultCommandGroup, help="List machine types with GPUs; refresh the list."
)
_NOTHING: Final = "-"


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(catalog, name="catalog")


@catalog.command("list")
def list_types(
    gpu: Annotated[
        str | None, typer.Option(metavar="GPU", help="Only these GPUs, as A100:80GB:8.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="CLOUD", help="Only this cloud: aws or gcp.")
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List machine types with their expected speed.

    Also shows GPUs and their links, network, CPUs, memory and local disks. A speed is a multiple of
    one V100. It is computed, not measured: `--json` says from what. Prices are in `lowtide offers`.
    """
    terminal = Terminal(as_json=as_json, quiet=quiet)
    with ending_well(terminal):
        catalogs = _catalogs(provider, settings_with(state_dir=state_dir).state_dir)
        wanted = None if gpu is None else _choice(gpu)
        rows = [
            one for found in catalogs for one in found.types if wanted is None or _fits(one, wanted)
        ]
        document = _document(catalogs, rows) if as_json else None
        if terminal.to_script(document, (one.name for one in rows)):
            return
        if not rows:
            terminal.line("No machine type has such a GPU; `lowtide catalog` lists all types.")
        else:
            terminal.table(_COLUMNS, rows)
            for found in catalogs:
                terminal.line(f"\n{found.provider}: as of {found.as_of}; {found.source}.")


@catalog.command("refresh")
def refresh(
    provider: Annotated[
        str | None, typer.Option(metavar="CLOUD", help="Only this cloud: aws or gcp.")
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Refresh the list from the configured clouds.

    The new list is stored in the state folder and replaces the one that Lowtide ships.
    """
    from app.adapters.providers.machine_catalog import save_catalog
    from app.bootstrap import open_providers
    from app.ports.cloud_provider import ProviderError
    from app.ports.provider_diagnosis import MachineTypeSource

    terminal = Terminal(as_json=as_json, quiet=quiet)
    with ending_well(terminal):
        settings = settings_with(state_dir=state_dir)
        try:
            sources = {
                name: found
                for name, found in open_providers(settings).items()
                if isinstance(found, MachineTypeSource) and provider in (None, name)
            }
        except SettingsError as error:
            raise CommandFailed(str(error)) from error
        if not sources:
            raise CommandFailed(
                "no configured cloud can be asked for its machine types; "
                "set LOWTIDE_PROVIDERS to aws or gcp, and see `lowtide doctor`"
            )
        today = SystemClock().now().date()
        done = []
        for name in sorted(sources):
            try:
                types = sources[name].machine_types()
                made = make_catalog(name, today, f"the API of {name}", types)
            except (ProviderError, InvalidValue) as error:
                raise CommandFailed(f"{name}: {error}", UNREACHABLE) from error
            path = save_catalog(made, settings.state_dir)
            done.append({"provider": name, "types": len(made.types), "path": str(path)})
            terminal.line(f"{name}: {len(made.types)} machine types, stored in {path}")
        if as_json:
            terminal.json(done)


def _catalogs(provider: str | None, state_dir: Any) -> list[MachineCatalog]:
    from app.adapters.providers.machine_catalog import CATALOG_PROVIDERS, load_catalog

    if provider is not None and provider not in CATALOG_PROVIDERS:
        known = " or ".join(CATALOG_PROVIDERS)
        raise CommandFailed(f"--provider {provider!r} is unknown; choose {known}")
    names = CATALOG_PROVIDERS if provider is None else (provider,)
    try:
        return [load_catalog(name, state_dir) for name in names]
    except InvalidValue as error:
        raise CommandFailed(error.message) from error


def _choice(written: str) -> GpuChoice:

    try:
        return parse_gpu_choice(written)
    except InvalidValue as error:
        raise CommandFailed(f"--gpu {written!r} {error.message}") from error


def _fits(one: MachineType, wanted: GpuChoice) -> bool:
    """A number of GPUs counts only when it is more than the one that goes without saying."""
    from dataclasses import replace

    if wanted.count == 1:
        wanted = replace(wanted, count=one.gpu_count)
    return is_choice(one.hardware, wanted)


def _speed(one: MachineType) -> Throughput:

    model = model_of(one.gpu, one.gpu_memory_gb)
    if model is None:
        return Throughput(1.0, 1.0)
    return expected_throughput(model)


def _document(catalogs: list[MachineCatalog], rows: list[MachineType]) -> dict[str, Any]:

    return {
        "catalogs": [
            {"provider": one.provider, "as_of": one.as_of.isoformat(), "source": one.source}
            for one in catalogs
        ],
        "gpus": {
            "as_of": CATALOG_DATE,
            "throughput_source": THROUGHPUT_SOURCE,
            "models": [asdict(model) for model in GPU_MODELS],
        },
        "types": [{**asdict(one), "throughput_per_gpu": asdict(_speed(one))} for one in rows],
    }


def _disks(one: MachineType) -> str:
    return f"{one.local_nvme_disks} × {one.local_nvme_gb // one.local_nvme_disks} GB"


def _network(one: MachineType) -> str:
    """What it has by itself, then what it takes further networks for."""
    if not one.wired_gbps:
        return f"{one.network_gbps:g} Gbit/s {one.fast_network}".rstrip()
    wired = f"{one.wired_gbps:g} {one.fast_network}".rstrip()
    return f"{one.network_gbps:g} Gbit/s, wired {wired}"


_COLUMNS: Final = (
    Column("TYPE", lambda one: f"{one.provider} {one.name}"),
    Column("GPU", lambda one: gpu_words(one.gpu, one.gpu_count, one.gpu_memory_gb)),
    Column("LINK", lambda one: one.interconnect if one.gpu_count > 1 else _NOTHING),
    Column("CPUS", lambda one: str(one.vcpus), True),
    Column("MEMORY", lambda one: f"{one.memory_gb} GB", True),
    Column("NETWORK", _network),
    Column("LOCAL DISKS", lambda one: _disks(one) if one.local_nvme_disks else _NOTHING),
    Column("CNN", lambda one: f"{_speed(one).cnn * one.gpu_count:.1f}×", True),
    Column("VIT", lambda one: f"{_speed(one).vit * one.gpu_count:.1f}×", True),
)
