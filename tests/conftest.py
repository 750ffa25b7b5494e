"""What holds for all tests: the slow ones run only with --slow, the notebooks run first."""

import hypothesis
import pytest

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
