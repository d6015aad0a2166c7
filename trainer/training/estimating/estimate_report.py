"""An estimate in words and a table, with the formulas it was made by and where they are from."""

from __future__ import annotations

from trainer.protocol.model_figures import BACKWARD
from trainer.protocol.train_estimate import (
    BANDWIDTH_SHARE,
    COMPUTE_SHARE,
    COMPUTE_SHARE_FAST,
    DECODED_PER_WORKER,
    FAST_TFLOPS,
    PEAK_SHARE,
    SCALING,
    GpuEstimate,
)
from trainer.training.estimating.run_estimate import EstimateReport

_HEAD = "GPU", "micro × accum", "memory GB", "samples/s", "ms/step", "limit", "MFU", "hours"


def as_text(found: EstimateReport) -> str:
    """Everything that a person wants to know, formulas first."""
    lines = [
        *_model(found),
        "",
        *_run(found),
        "",
        *_table(found),
        *_choice(found),
        "",
        *_formulas(found),
    ]
    if found.measured is not None:
        lines += ["", *_measured(found)]
    return "\n".join(lines)


def _model(found: EstimateReport) -> list[str]:
    figures = found.work.figures
    return [
        f"model   {figures.name}: {figures.parameters:,} parameters,"
        f" {_flop(figures.training_flops)} to train on one sample",
        f"        = {1 + BACKWARD} × {_flop(figures.forward_flops)} of the forward pass"
        " (the backward pass has two products for each)",
        f"        {figures.source}",
    ]


def _run(found: EstimateReport) -> list[str]:
    work, config = found.work, found.config
    epochs = work.samples / found.train_samples
    return [
        f"run     {found.total_steps:,} steps of {config.batch_size:,} = {work.samples:,} samples,"
        f" {epochs:,.4g} epochs of {found.train_samples:,}; {work.precision}, {work.optimizer}",
        f"        {work.total_flops:.3g} FLOP"
        f" = {1 + BACKWARD} × {work.figures.forward_flops:.4g} × {work.samples:,}",
    ]


def _table(found: EstimateReport) -> list[str]:
    if not found.gpus:
        return [f"        none of these GPUs has {found.work.precision} and room for one sample"]
    priced = any(one.usd is not None for one in found.gpus)
    decodes = found.work.decodes_images
    head = [*_HEAD, *(["workers"] if decodes else []), *(["$"] if priced else [])]
    rows = [head, *(_row(one, decodes, priced) for one in found.gpus)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return [
        "  ".join(
            text.ljust(width) if column in (0, 5) else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _choice(found: EstimateReport) -> list[str]:
    if not found.gpus:
        return []
    best = found.gpus[0]
    why = "the fastest" if best.usd is None else "the cheapest"
    workers = f", {best.workers} workers for each GPU" if found.work.decodes_images else ""
    return [
        "",
        f"choose  {best.gpus} × {best.gpu.words}, {why}: {best.micro_batch} samples at once,"
        f" accumulation {best.accumulation}{workers}",
    ]


def _row(one: GpuEstimate, decodes: bool, priced: bool) -> list[str]:
    count = f"{one.gpus} × " if one.gpus > 1 else ""
    row = [
        f"{count}{one.gpu.words}",
        f"{one.micro_batch} × {one.accumulation}",
        f"{one.memory.total / 1e9:.1f}",
        f"{one.samples_per_second:,.0f}",
        f"{1e3 * one.step_seconds:,.1f}",
        one.limit,
        f"{100 * one.mfu:.0f} %",
        f"{one.hours:,.2f}",
    ]
    if decodes:
        row.append(str(one.workers))
    if priced:
        row.append("no price" if one.usd is None else f"{one.usd:,.2f}")
    return row


def _formulas(found: EstimateReport) -> list[str]:
    work = found.work
    bandwidth = BANDWIDTH_SHARE[work.bytes_per_number]
    traffic = work.figures.traffic_elements * work.bytes_per_number / 1e6
    share = PEAK_SHARE[work.precision]
    of_peak = "" if share == 1 else f" × {share:g} for {work.precision}"
    lines = [
        "how     a step takes the longer of computing and memory traffic (roofline; Williams 2009)",
        f"        computing: FLOP / ({COMPUTE_SHARE:g} of the dense 16-bit peak{of_peak};"
        f" {COMPUTE_SHARE_FAST:g} from {FAST_TFLOPS} TFLOP/s on): NVIDIA NeMo, ViT-g/14",
        f"        memory traffic: {traffic:,.4g} MB a sample / ({bandwidth:g} of the bandwidth):"
        " NVIDIA DeepLearningExamples, ResNet-50 v1.5",
    ]
    if any(one.gpus > 1 for one in found.gpus):
        lines.append(f"        several GPUs: {SCALING:g} of their sum (the same measurement)")
    if work.decodes_images:
        lines.append(f"        workers: {DECODED_PER_WORKER:g} JPEGs a second each, for every GPU")
    return lines


def _measured(found: EstimateReport) -> list[str]:
    measured, here = found.measured, found.here
    assert measured is not None
    lines = [
        f"here    {measured.name}: {measured.micro_batch} samples in"
        f" {1e3 * measured.step_seconds:,.1f} ms = {measured.samples_per_second:,.0f} samples/s"
    ]
    if measured.peak_bytes is not None:
        lines[0] += f", {measured.peak_bytes / 1e9:.1f} GB"
    if here is None:
        lines.append("        this machine is in no catalog: the table is not moved by it")
    else:
        share = measured.samples_per_second / here.samples_per_second
        lines.append(
            f"        {100 * share:.0f} % of what was expected of it: the table is moved by that"
        )
    return lines


def _flop(number: float) -> str:
    """`24.54 GFLOP`."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:,.4g} {unit}FLOP"
    return f"{number:,.0f} FLOP"
