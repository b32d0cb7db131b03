"""flexfl deploy demo: a federation on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexfl.cli.deploy.shared import Set, adapter, console_of

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.spec.schema import Spec


def demo(
    spec: Annotated[
        str, typer.Argument(metavar="[SPEC]", help="A spec that ships, or a TOML file.")
    ] = "demo",
    clients: Annotated[int, typer.Option("--clients", min=1, help="How many clients to start.")] = 3,
    set_: Set = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run directory.", show_default="runs/deploy")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Simulate the same spec afterwards.")
    ] = True,
) -> None:
    """A server and clients on this machine, over mutual TLS: certificates, training, report."""
    console = console_of()
    from flexfl.cli.data import bring_for
    from flexfl.cli.show import ProgressLine, show_result
    from flexfl.deploy.plan import Plan
    from flexfl.spec.load import load_spec

    resolved = load_spec(spec, [*(set_ or []), f"data.clients={clients}"])
    bring_for(console, [resolved])
    directory = out or _free(Path("runs") / "deploy")
    run_demo = adapter().demo.run_demo
    began = time.monotonic()
    with ProgressLine(console, resolved.train.iterations) as line:

        def on_step(what: str) -> None:
            console.print(f"{time.monotonic() - began:5.1f} s  {what}")

        plan = Plan.local("run", resolved)
        run_demo(plan, directory, on_step=on_step, on_live=lambda live: line.update(live))
    from flexfl.results.run import Run

    summary = Run(directory).summary or {}
    show_result(console, summary, directory)
    _show_traffic(console, summary)
    if compare and not any(table["kind"] == "measured" for _, table in resolved.costs):
        _compare(console, resolved, summary)


def _compare(console: Console, spec: Spec, summary: dict[str, Any]) -> None:
    """The same spec in a simulation: the accuracy should be the same to the last digit that is shown."""
    with console.status("simulating the same"):
        from flexfl.sim.run import simulate

        # One thread: with so few clients a second one costs more than it brings.
        simulated = simulate(spec, engine={"threads": 1}).summary
    ours, theirs = (told["test_accuracy"] for told in (summary, simulated))
    if ours is not None and theirs is not None:
        console.print(f"simulated      test accuracy {theirs:.4f} (between processes: {ours:.4f})")


def _show_traffic(console: Console, summary: dict[str, Any]) -> None:
    for title, kind in (("messages", "payload_bytes"), ("on the wire", "wire_bytes")):
        if told := summary.get(kind):
            console.print(f"{title:14s} {_mb(told['up'])} up, {_mb(told['down'])} down")


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def _free(base: Path) -> Path:
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path
