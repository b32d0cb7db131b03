"""flexfl bench: measure how fast the engine is on this machine, as ratios."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from flexfl.errors import Fault, InputError


class ShapeName(StrEnum):
    fashion = "fashion"
    cifar = "cifar"
    all = "all"


def bench(
    shape: Annotated[
        ShapeName, typer.Option("--shape", help="Dataset and network to measure with.")
    ] = ShapeName.all,
    clients: Annotated[int, typer.Option("--clients", min=10, help="Number of clients N.")] = 100,
    scale: Annotated[
        str,
        typer.Option("--scale", metavar="N,N,…", help="Numbers of clients to compare; none if empty."),
    ] = "100,1000,10000",
    compressor: Annotated[
        list[str] | None,
        typer.Option(
            "--compressor", metavar="KIND", help="Compare a compressor with top-k, and measure no more."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the results to this file, too.")
    ] = None,
) -> None:
    """Compare the engine's speed with plain torch (the limit) and with the oracle, in one process."""
    from rich.console import Console

    from flexfl.compress import COMPRESSORS
    from flexfl.experiments import bench as measured
    from flexfl.results.files import create_output_folder

    console = Console(highlight=False)
    for kind in compressor or ():
        COMPRESSORS.resolve(kind, "--compressor")
    sizes = [size.strip() for size in scale.split(",") if size.strip()]
    if wrong := [size for size in sizes if not size.isdigit() or int(size) < 10]:
        rule = "must list whole numbers ≥ 10"
        raise InputError([Fault("--scale", rule, wrong, "for example 100,1000")], "the command")
    if file is not None:
        create_output_folder(file.absolute().parent, "--json")
    results: dict[str, Any] = {}
    for name in measured.SHAPES if shape is ShapeName.all else [shape.value]:
        with console.status(f"measuring {name}"):
            if compressor:
                results[name] = measured.compressors(name, compressor, clients=clients)
            else:
                results[name] = measured.bench(name, clients=clients)
        (_show_compressors if compressor else _show)(console, results[name])
    if sizes and not compressor:
        with console.status("measuring scaling"):
            results["scaling"] = measured.scaling("fashion", [int(size) for size in sizes])
        console.print("[bold]scaling[/bold]  fashion")
        for row in results["scaling"]:
            by_client, memory = row["ms_per_client"] * 1e3, row["rss_per_client_parameter"]
            console.print(
                f"  N = {row['clients']:>6,}  {row['ms']:9.2f} ms  {by_client:6.1f} µs per client"
                f"  ({row['ratio_per_client']:.2f} ×)  {memory:5.2f} bytes per client and parameter",
                soft_wrap=True,
            )
    if file is not None:
        file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _show(console: Any, found: dict[str, Any]) -> None:
    """Print the results for one shape."""
    console.print(
        f"[bold]{found['shape']}[/bold]  N = {found['clients']}, D = {found['parameters']}, "
        f"{found['threads']} threads ({found['threading']}), gradients by {found['gradients']}",
        soft_wrap=True,
    )
    console.print(f"  iteration      {found['ms']:9.2f} ms")
    console.print(
        f"  limit          {found['limit_ms']:9.2f} ms   ratio {found['ratio_limit']:.2f}"
        f" ({found['ratio_limit_apart']:.2f} with its passes timed separately)"
    )
    console.print(f"  oracle         {found['oracle_ms']:9.2f} ms   {found['ratio_oracle']:.0f} times slower")
    stages = ", ".join(f"{stage} {ms:.2f}" for stage, ms in found["stages_ms"].items())
    console.print(f"  stages (ms)    {stages}", soft_wrap=True)
    share = f"{found['evaluation_share']:.0%} of a run that evaluates every 50 iterations"
    console.print(f"  evaluation     {found['evaluation_ms']:9.2f} ms   {share}")
    console.print(f"  memory         {found['rss_per_client_parameter']:9.2f} bytes per client and parameter")


def _show_compressors(console: Any, found: list[dict[str, Any]]) -> None:
    """Print how compressors compare on one shape."""
    for row in found:
        console.print(f"  {row['compressor']:<12} {row['ms']:9.2f} ms   {row['ratio']:.2f} × top-k")
        stages = ", ".join(f"{stage} {ms:.2f}" for stage, ms in row["stages_ms"].items())
        console.print(f"    stages (ms)  {stages}", soft_wrap=True)
