"""The notebooks run from top to bottom in an empty folder, and what they show is there."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
pytestmark = pytest.mark.slow  # half a minute


def executed(path, folder):
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()


def printed(notebook):
    return "".join(
        output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "stream" and output["name"] == "stdout"
    )


def figures(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_there_are_three_and_none_is_stored_with_outputs():
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells), path


@pytest.fixture
def ipython_config(tmp_path_factory, monkeypatch):
    """Keep the kernel's history and settings out of the home folder."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))


@pytest.mark.usefixtures("ipython_config")
def test_compare_two_methods(tmp_path):
    done = executed(FOLDER / "compare_two_methods.ipynb", tmp_path)
    assert figures(done) == 2
    svg, pdf = (tmp_path / f"accuracy_by_cost.{form}" for form in ("svg", "pdf"))
    assert "uplink cost of a client</text>" in svg.read_text(encoding="utf-8")  # text, not outlines
    assert pdf.read_bytes().startswith(b"%PDF")
    found = re.findall(r"spent / budget = ([\d.]+)", printed(done))
    assert len(found) == 6
    assert all(0.5 < float(share) < 1.1 for share in found)
    cost = {
        m[0]: float(m[1]) for m in re.findall(r"uplink cost of a client +(\S+).*? ([\d.]+)  ", printed(done))
    }
    assert cost["FlexFL"] < cost["randomised"]


@pytest.mark.usefixtures("ipython_config")
def test_fine_tune_with_lora(tmp_path):
    done = executed(FOLDER / "fine_tune_with_lora.ipynb", tmp_path)
    assert figures(done) == 1
    rows = re.findall(r"accuracy ([\d.]+) +uplink of a client +([\d.]+) kB", printed(done))
    (all_right, everything), (right, adapters), (with_budget, limited) = ([*map(float, row)] for row in rows)
    assert min(all_right, right, with_budget) > 0.85
    assert limited < adapters / 5 < everything / 50
    assert "to store: 18 tensors" in printed(done)


@pytest.mark.usefixtures("ipython_config")
def test_fleet_with_a_data_plan(tmp_path):
    done = executed(FOLDER / "fleet_with_a_data_plan.ipynb", tmp_path)
    assert figures(done) == 1
    months = [float(month) for month in re.findall(r"([\d.]+) of 50", printed(done))]
    assert len(months) == 12
    assert all(40 < month < 50.3 for month in months)  # at the pace of five days, in whole packets
    assert float(re.search(r"accuracy after five days: ([\d.]+)", printed(done))[1]) > 0.6
