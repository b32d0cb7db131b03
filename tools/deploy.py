"""Measure the speed of a federation of processes on this machine, and whether its memory grows.

python tools/deploy.py [--clients 2] [--iterations 10000]

A server and clients over mutual TLS train the MLP on fashion-mini in the paper's setting, while the
resident memory of each process is sampled. Prints iterations per second, payload and bytes on the wire,
and for each process the memory after the first tenth of the run and its growth until the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from flexfl.deploy.demo import Federation, federation
from flexfl.deploy.plan import Plan
from flexfl.results import Run
from flexfl.results.observer import Live
from flexfl.spec.load import load_spec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=10_000)
    given = parser.parse_args()
    settings = {
        "data.clients": given.clients,
        "data.partition": "'iid'",
        "train.iterations": given.iterations,
        "train.evaluate_every": max(1, given.iterations // 20),
        "deploy.deadline": 60.0,
    }
    spec = load_spec("quickstart", [f"{name}={value}" for name, value in settings.items()])
    with tempfile.TemporaryDirectory() as folder, federation(Path(folder), given.clients) as processes:
        samples: list[tuple[int, dict[str, int]]] = []
        processes.submit(Plan.local("bench", spec))
        processes.watch("bench", lambda live: sample_memory(processes, live, samples))
        report(Run(processes.server_folder / "bench"), samples)


def sample_memory(processes: Federation, live: Live, samples: list[tuple[int, dict[str, int]]]) -> None:
    """Append the resident memory of each process, once per new iteration in the status."""
    if samples and live.iteration == samples[-1][0]:
        return
    named = {"server": processes.server.pid} | {name: p.pid for name, p in processes.clients.items()}
    found: dict[str, int] = {}
    for name, pid in named.items():
        parent = psutil.Process(pid)
        found[name] = parent.memory_info().rss
        for child in parent.children():
            found[f"{name}, job"] = child.memory_info().rss
    samples.append((live.iteration, found))


def report(run: Run, samples: list[tuple[int, dict[str, int]]]) -> None:
    """Print speed, bytes and memory."""
    seconds, at = run.evaluations["seconds"], run.evaluations["iteration"]
    rates = (at[1:] - at[:-1]) / (seconds[1:] - seconds[:-1])
    clients = run.spec["data"]["clients"]
    print(f"{time.strftime('%Y-%m-%d')}, {psutil.cpu_count()} cores, {clients} clients")
    parts = f"parts of the run: {min(rates):.1f} to {max(rates):.1f}"
    print(f"iterations per second  {at[-1] / seconds[-1]:.1f} ({parts})")
    summary: dict[str, Any] = run.summary or {}
    count = at[-1] * run.spec["data"]["clients"]
    for way in ("up", "down"):
        payload, wire = (summary[kind][way] / count for kind in ("payload_bytes", "wire_bytes"))
        print(f"bytes {way:4s}  {payload:8.0f} payload, {wire:8.0f} on the wire, per client and iteration")
    print("memory in MB      after a tenth      growth")
    after = next(found for iteration, found in samples if iteration >= at[-1] / 10)
    end = [found for _, found in samples if set(found) >= set(after)][-1]
    for name in after:
        print(f"{name:16s}  {after[name] / 1e6:13.0f}  {(end[name] - after[name]) / 1e6:10.1f}")


if __name__ == "__main__":
    main()
