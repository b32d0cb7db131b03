"""Sweeps as data: which cells a file means, and what it is refused for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.errors import InputError
from flexfl.experiments.paper import FIGURES, SETUPS, cells_of
from flexfl.experiments.sweep import _shared_folders, folder_name, load_sweep
from flexfl.spec.load import load_spec, merged, seeds_of


def sweep_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trial.toml"
    path.write_text(text, encoding="utf-8")
    return path


def cells(tmp_path: Path, text: str) -> dict[str, object]:
    return {cell.name: cell for cell in load_sweep(sweep_file(tmp_path, text)).cells(tmp_path / "out")}


def faults(tmp_path: Path, text: str) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        load_sweep(sweep_file(tmp_path, text)).cells(tmp_path / "out")
    return {fault.field: str(fault) for fault in caught.value.faults}


GRID = """
base = "fashion"
seeds = "1-2"
set.train.iterations = 7

[grid]
control.tradeoff = [0.002, 0.02]
control.initial_queue = [0.1, 1.0]
"""


def test_a_grid_is_every_combination_for_every_seed(tmp_path: Path) -> None:
    found = load_sweep(sweep_file(tmp_path, GRID)).cells(tmp_path / "out")
    seen = [(c.spec.train.seed, c.spec.control.tradeoff, c.spec.control.initial_queue) for c in found]
    # Seed by seed: a sweep cut short has something of everything.
    assert seen == [(seed, v, w) for seed in (1, 2) for v in (0.002, 0.02) for w in (0.1, 1.0)]
    assert all(cell.spec.train.iterations == 7 for cell in found)
    assert all(cell.spec.budget.uplink == 0.01 for cell in found)  # from the base
    assert found[0].name == "tradeoff=0.002, initial_queue=0.1, seed 1"
    assert found[0].out == tmp_path / "out" / "tradeoff=0.002-initial_queue=0.1" / "seed-1"
    assert len({cell.out for cell in found}) == len(found)


def test_variants_times_grid(tmp_path: Path) -> None:
    text = """
    seeds = [3]
    [grid]
    train.learning_rate = [0.1, 0.2]
    [[variant]]
    name = "online"
    [[variant]]
    name = "top k"
    set.control = { policy = "top-k", send_ratio = 0.5 }
    """
    found = cells(tmp_path, text)
    assert [(c.spec.control.policy, c.spec.train.learning_rate) for c in found.values()] == [
        ("online", 0.1),
        ("online", 0.2),
        ("top-k", 0.1),
        ("top-k", 0.2),
    ]
    assert "top k, learning_rate=0.2, seed 3" in found


def test_without_grid_or_variants_the_seeds_alone(tmp_path: Path) -> None:
    found = cells(tmp_path, 'base = "quickstart"\nseeds = [4, 2]')
    assert list(found) == ["trial, seed 4", "trial, seed 2"]


def test_axes_that_end_alike_are_told_apart(tmp_path: Path) -> None:
    text = "[grid]\ncosts.uplink.factor = [1.0, 2.0]\ncosts.downlink.factor = [1.0]\n"
    base = 'set.costs.uplink = { kind = "fading" }\nset.costs.downlink = { kind = "fading" }\n'
    assert "costs.uplink.factor=2, costs.downlink.factor=1, seed 1" in cells(tmp_path, base + text)


def test_values_with_parts_have_short_names(tmp_path: Path) -> None:
    text = """
    [grid]
    data.weights = ["equal", "samples"]
    control.tradeoff = [{ compute = 1.0, uplink = 0.1, downlink = 0.1 }]
    """
    assert "weights=samples, tradeoff=#1, seed 1" in cells(tmp_path, text)


@pytest.mark.parametrize(
    ("axis", "folders"),
    [
        ("train.learning_rate = [0.1234561, 0.1234562]", ["0.1234561", "0.1234562"]),
        ('data.path = ["x/a.npz", "x-a.npz"]', ["x-a.npz-1", "x-a.npz-2"]),
        (
            "data.partition = [{kind='quantity', sizes=[1.0, 2.0]}, {kind='quantity', sizes=[1.0, 9.0]}]",
            ["quantity-1", "quantity-2"],
        ),
    ],
)
def test_values_that_look_alike_have_folders_of_their_own(
    tmp_path: Path, axis: str, folders: list[str]
) -> None:
    (name,) = re.findall(r"^[a-z]+\.(\w+)", axis)
    text = f"set.data = {{ name = 'file', path = 'a.npz', clients = 2 }}\n[grid]\n{axis}"
    found = load_sweep(sweep_file(tmp_path, text)).cells(tmp_path)
    assert [cell.out.parent.name for cell in found] == [f"{name}={folder}" for folder in folders]
    assert found[0].spec != found[1].spec


def test_two_cells_in_one_folder_are_refused() -> None:
    faults_found = _shared_folders(["a, b", "a-b", "c"])
    assert [str(fault) for fault in faults_found] == [
        "the sweep uses the folder of a, b twice, got 'a-b'; rename a variant or value"
    ]


def test_the_seed_of_the_base(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("train.seed = 9")
    (cell,) = load_sweep(sweep_file(tmp_path, 'base = "own.toml"')).cells(tmp_path)
    assert (cell.spec.train.seed, cell.name) == (9, "trial, seed 9")


def test_a_base_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text("train = { iterations = 3 }")
    path = sweep_file(tmp_path, 'base = "mine.toml"')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (cell,) = load_sweep(path).cells(tmp_path)
    assert cell.spec.train.iterations == 3


def test_faults_are_listed_at_once(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """
        base = 3
        seeds = "one"
        [grid]
        control.tradeoff = 0.1
        train = [1]
        [[variant]]
        set.control.tradeoff = 1
        [[variant]]
        name = "a b"
        [[variant]]
        name = "a-b"
        sett = 1
        """,
    )
    assert set(found) == {
        "base",
        "seeds",
        "grid.control.tradeoff",
        "grid.train",
        "variant[0].name",
        "variant[2].name",
        "variant[2].sett",
    }
    assert "did you mean set?" in found["variant[2].sett"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("grids = 1", "grids"),
        ("grid = 1", "grid"),
        ("set = 1", "set"),
        ("variant = 1", "variant"),
        ('[[variant]]\nname = "a"\nset.control = 1', "variant[0].set"),
        ("seeds = [1.5]", "seeds"),
        ("[grid]\ncontrol.tradeoff = []", "grid.control.tradeoff"),
        ("seeds = []", "seeds"),
        ("set.train = 3", "set.train"),
        ("set.train.seed = 7", "set.train.seed"),
        ("[grid]\ntrain.seed = [1, 2]", "grid.train.seed"),
        ('[[variant]]\nname = "a"\nset.train.seed = 7', "variant a.train.seed"),
        ("not toml", "line 1, column 5"),
        ('base = "nothing.toml"', "SPEC"),
    ],
)
def test_a_file_that_is_no_sweep(tmp_path: Path, text: str, field: str) -> None:
    assert field in faults(tmp_path, text)


def test_a_wrong_cell_is_named_once_for_all_seeds_before_anything_runs(tmp_path: Path) -> None:
    found = faults(tmp_path, 'base = "fashion"\nseeds = "1-5"\n[grid]\ncontrol.tradeoff = [0.1, -1.0]')
    assert list(found) == ["tradeoff=-1: control.tradeoff"]
    assert not (tmp_path / "out").exists()


def test_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_sweep(tmp_path / "absent.toml")


def test_merged_replaces_kinds_and_adds_to_the_rest() -> None:
    given = {"costs": {"uplink": {"kind": "fading", "factor": 2}}, "train": {"seed": 1, "iterations": 5}}
    change = {"costs": {"uplink": {"kind": "constant"}}, "train": {"seed": 2}}
    out = merged(given, change)
    assert out == {"costs": {"uplink": {"kind": "constant"}}, "train": {"seed": 2, "iterations": 5}}
    assert given["train"]["seed"] == 1
    assert given["costs"]["uplink"]["kind"] == "fading"


@given(st.lists(st.integers(0, 500), max_size=8))
def test_seeds_as_text_and_as_a_list(numbers: list[int]) -> None:
    expected = tuple(dict.fromkeys(numbers))
    assert seeds_of(",".join(map(str, numbers)), "seeds") == expected
    assert seeds_of(numbers, "seeds") == expected


def test_ranges_of_seeds() -> None:
    assert seeds_of("1-3, 7,2-4", "seeds") == (1, 2, 3, 7, 4)
    for bad in ("3-1", "a", "1-", "-1", "1-20000", [True], 1.5):
        with pytest.raises(InputError, match="for example 1-5"):
            seeds_of(bad, "seeds")


@given(st.text(max_size=30))
def test_any_label_is_a_folder_name(label: str) -> None:
    name = folder_name(label)
    assert name
    assert "/" not in name
    assert name not in (".", "..")


# The paper's figures -------------------------------------------------------------------------


def test_a_figure_can_be_shorter_and_evaluated_less_often(tmp_path: Path) -> None:
    found = cells_of(
        [FIGURES["fig1"]], SETUPS["cifar10"], tmp_path, seeds=2, iterations=300, evaluate_every=100
    )
    assert len(found) == 10
    assert {(cell.spec.train.iterations, cell.spec.train.evaluate_every) for cell in found} == {(300, 100)}


@pytest.mark.parametrize("dataset", ["fashion", "cifar10"])
def test_figures_are_the_papers(dataset: str, tmp_path: Path) -> None:
    setup = SETUPS[dataset]
    found = cells_of(list(FIGURES.values()), setup, tmp_path, seeds=setup.seeds)
    assert setup.seeds == {"fashion": 20, "cifar10": 5}[dataset]
    assert len(found) == 9 * setup.seeds  # online is in all three figures, and computed once
    by_folder = {cell.out.parent.name: cell.spec for cell in found}
    plain = load_spec(dataset)
    for spec in by_folder.values():
        assert (spec.train.iterations, spec.train.evaluate_every) == (10_000, 50)
        assert (spec.budget, spec.data, spec.model) == (plain.budget, plain.data, plain.model)
    control = {name: spec.control for name, spec in by_folder.items()}
    assert control["online"] == plain.control
    for ratio in (0.001, 0.01, 0.1, 1.0):
        assert (control[f"kr-{ratio}"].policy, control[f"kr-{ratio}"].send_ratio) == ("randomised", ratio)
    for v in (0.002, 0.2):
        assert (control[f"V-{v}"].tradeoff, control[f"V-{v}"].initial_queue) == (v, 1.0)
    for w in (0.1, 10.0):
        assert (control[f"W-{w}"].tradeoff, control[f"W-{w}"].initial_queue) == (0.02, w)
    assert {key: [method.key for method in figure.methods] for key, figure in FIGURES.items()} == {
        "fig1": ["online", "kr-0.001", "kr-0.01", "kr-0.1", "kr-1.0"],
        "fig2": ["V-0.002", "online", "V-0.2"],
        "fig3": ["W-0.1", "online", "W-10.0"],
    }
