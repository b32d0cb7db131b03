"""flexfl deploy demo: a federation on this machine."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexfl.cli.deploy.shared import SPEC, Set, create_console, nvflare_modules
from flexfl.errors import FlexFLWarning

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.spec.schema import Spec


def demo(
    spec: Annotated[str, SPEC] = "demo",
    clients: Annotated[int, typer.Option("--clients", min=1, help="How many clients to start.")] = 3,
    set_: Set = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run directory.", show_default="runs/deploy")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Simulate the same spec afterwards.")
    ] = True,
) -> None:
    """Run a server and clients on this machine, over mutual TLS, from certificates to results."""
    console = create_console()
    from flexfl.cli.data import ensure_datasets
    from flexfl.cli.show import ProgressLine, show_notes, show_result
    from flexfl.deploy.plan import Plan
    from flexfl.spec.load import load_spec

    resolved = load_spec(spec, [*(set_ or []), f"data.clients={clients}"])
    show_notes(console, [resolved])
    ensure_datasets(console, [resolved])
    directory = out or _unused_path(Path("runs") / "deploy")
    run_demo = nvflare_modules().demo.run_demo
    start = time.monotonic()
    with ProgressLine(console, resolved.train.iterations) as line:

        def on_step(what: str) -> None:
            console.print(f"{time.monotonic() - start:5.1f} s  {what}")

        plan = Plan.local("run", resolved)
        run_demo(plan, directory, on_step=on_step, on_live=lambda live: line.update(live))
    from flexfl.results.run import Run

    summary = Run(directory).summary or {}
    show_result(console, summary, directory)
    _show_traffic(console, summary)
    if compare and not any(table["kind"] == "measured" for _, table in resolved.costs):
        _compare(console, resolved, summary)


def _compare(console: Console, spec: Spec, summary: dict[str, Any]) -> None:
    """Simulate the same spec and print its accuracy, which should equal the deployment's."""
    with console.status("simulating the same spec"):
        from flexfl.sim.run import simulate

        # One thread: with so few clients a second one costs more than it saves.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FlexFLWarning)  # the notes are shown already
            simulation = simulate(spec, engine={"threads": 1}).summary
    deployed, simulated = (metrics["test_accuracy"] for metrics in (summary, simulation))
    if deployed is not None and simulated is not None:
        console.print(f"simulated      test accuracy {simulated:.4f} (deployed: {deployed:.4f})")


def _show_traffic(console: Console, summary: dict[str, Any]) -> None:
    for title, kind in (("payload", "payload_bytes"), ("on the wire", "wire_bytes")):
        if traffic := summary.get(kind):
            console.print(f"{title:14s} {_mb(traffic['up'])} up, {_mb(traffic['down'])} down")


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def _unused_path(base: Path) -> Path:
    """Return `base`, or the first of base-2, base-3, … that does not exist."""
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path
