"""Count what keeps the code easy to find one's way in.

    python tools/house.py [--check] [--source src/flexfl]

- where a rule is asked to decide on a cost (moment → cost → decide → charge): one file
- files that one simulated iteration crosses, and that `flexfl run` crosses up to the first iteration: files
  of the package in which a function is called (imports do not count)
- functions over 60 lines, modules over 350
- two-way doors: rooms (the folders and modules right below the package) that import each other, directly or
  through others, not counting imports for type checkers

With --check it ends with 1 if a limit is passed.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

LIMITS = {"step": 17, "start": 74, "function": 60, "module": 350}
"""A start is to cross 30 files one day. It had come down to 52; joint budgets, what objects are, the checks
and shapes of samples, and budgets with units, a clock and a horizon came in since, one file an idea. A step
had 10: what is left of a budget (`control/allowance.py`), the price beside the queues, and the learning rate
(`learning_rate.py`) came in; `control/log_price.py` was a part of `control/price.py`. What a cost counts
(`counting.py`), gradients that enter with local work (`sim/entering.py`), and arrays of both kinds of kernels
(`sim/vectors.py`) are asked in every step since."""


def modules(source: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))}


def decisions(trees: dict[Path, ast.Module], source: Path) -> list[str]:
    """Return the places where a rule is asked to decide: calls of `.decide(cost, …)`."""
    return [
        f"{path.relative_to(source)}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "decide"
        and len(node.args) > 1
        and not (isinstance(node.func.value, ast.Call) and ast.unparse(node.func.value) == "super()")
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id in ("cost", "lam", "phi", "psi")
    ]


def long_functions(trees: dict[Path, ast.Module], source: Path) -> list[str]:
    return [
        f"{path.relative_to(source)}:{node.lineno} {node.name} ({lines} lines)"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LIMITS["function"]
    ]


def long_modules(source: Path) -> list[str]:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source.rglob("*.py")}
    return [f"{path.relative_to(source)} ({n} lines)" for path, n in sizes.items() if n > LIMITS["module"]]


def two_way_doors(trees: dict[Path, ast.Module], source: Path) -> list[str]:
    """Return the rooms that can be reached from themselves."""
    doors: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        room = path.relative_to(source).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for name in imports(tree):
            parts = name.split(".")
            if parts[0] == source.name and len(parts) > 1 and parts[1] != room:
                doors[room].add(parts[1])
    reach = {room: set(others) for room, others in doors.items()}
    for _ in reach:
        for others in reach.values():
            others |= {further for other in list(others) for further in reach.get(other, ())}
    return [
        f"{room} ⇄ {', '.join(sorted(o for o in reach[room] if room in reach.get(o, ())))}"
        for room in sorted(reach)
        if room in reach[room]
    ]


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports, anywhere in it, except for type checkers only."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            stack += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        stack += ast.iter_child_nodes(node)


def crossed(work: Callable[[], object], source: Path) -> list[str]:
    """Return the files of the package in which a function is called while `work` runs."""
    found: set[str] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name not in ("<module>", "__getattr__"):
            found.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    inside = (Path(name) for name in found if name.startswith(str(source)))
    # The bodies of classes are part of an import, not calls; they share the file with what is called.
    return sorted(str(path.relative_to(source)) for path in inside)


def start_and_step(source: Path) -> tuple[list[str], list[str]]:
    """Return the files that `flexfl run quickstart` crosses to its first iteration, and in a later one."""
    import importlib

    importlib.import_module("flexfl.sim.run")  # imports are not what is counted
    main = importlib.import_module("flexfl.cli.main")
    engine = importlib.import_module("flexfl.sim.engine").Engine

    class Reached(BaseException):
        pass

    original, caught = engine.step, []

    def first(self: Any, *args: Any) -> Any:
        caught.append(self)
        raise Reached

    def run() -> None:
        engine.step = first
        try:
            with tempfile.TemporaryDirectory() as folder:
                main.app(["run", "quickstart", "--out", f"{folder}/run", "--quiet"], standalone_mode=False)
        except Reached:
            pass
        finally:
            engine.step = original

    start = crossed(run, source)
    [found] = caught
    for _ in range(30):
        found.step()
    steps = [crossed(found.step, source) for _ in range(21)]
    return start, sorted(steps, key=len)[len(steps) // 2]


def main() -> int:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "src" / "flexfl")
    options = parser.parse_args()
    source = options.source.resolve()
    sys.path.insert(0, str(source.parent))
    trees = modules(source)
    decided = decisions(trees, source)
    start, step = start_and_step(source)
    rows = {
        "places that ask a rule to decide on a cost": (decided, 1),
        "files that one simulated iteration crosses": (step, LIMITS["step"]),
        "files from `flexfl run` to the first iteration": (start, LIMITS["start"]),
        f"functions over {LIMITS['function']} lines": (long_functions(trees, source), 0),
        f"modules over {LIMITS['module']} lines": (long_modules(source), 0),
        "rooms with two-way doors": (two_way_doors(trees, source), 0),
    }
    passed = True
    for what, (found, limit) in rows.items():
        print(f"{what}: {len(found)} (at most {limit})")
        for line in found:
            print(f"    {line}")
        passed &= len(found) <= limit
    return 0 if passed or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
