"""What holds for all tests: the slow ones run only with --slow, the notebooks run first."""

import subprocess
import sys

import hypothesis
import pytest

from repository import ROOT

# A busy machine is no bug: examples may take as long as they need. The same examples every time.
hypothesis.settings.register_profile("pmlp", deadline=None, derandomize=True)
hypothesis.settings.load_profile("pmlp")


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run slow tests and the slow cells of notebooks")


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: "notebook" not in item.keywords)  # they take longest, so no worker is left with one at the end
    for item in items:
        if "slow" in item.keywords and not config.getoption("slow"):
            item.add_marker(pytest.mark.skip(reason="needs --slow"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of its own for data and runs."""
    monkeypatch.setenv("PMLP_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The documentation, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("docs") / "html"
    command = [sys.executable, "-m", "sphinx", "-c", "docs", "-W", "--keep-going", "-E", "-q", ".", folder]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder
