"""Every notebook runs as nbdev_test runs it: pytest tests/test_notebooks.py -k 12_density; --slow adds its slow cells."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from repository import NOTEBOOKS, ROOT, read_cells

LONGEST = ["experiments/42_paper", "experiments/41_grid", "training/39_training", "theory/20_clusters", "graph/15_estimator"]  # they start first
NAMES = LONGEST + [name for name in NOTEBOOKS if name not in LONGEST]


@pytest.mark.notebook
@pytest.mark.parametrize("name", NAMES)
def test_notebook(name, request):
    if any(cell["cell_type"] == "raw" and "skip_exec: true" in cell["source"] for cell in read_cells(NOTEBOOKS[name])):
        pytest.skip("its front matter says skip_exec")
    flags = "slow" if request.config.getoption("slow") else ""
    command = [Path(sysconfig.get_path("scripts")) / "nbdev_test", "--path", NOTEBOOKS[name], "--flags", flags]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout
