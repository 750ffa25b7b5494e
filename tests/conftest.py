"""Tests marked `slow` run only when asked for: pytest tests/ --slow."""

import hypothesis
import pytest

# A busy machine is no bug: examples may take as long as they need. The same examples every time.
hypothesis.settings.register_profile("pmlp", deadline=None, derandomize=True)
hypothesis.settings.load_profile("pmlp")


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run tests that take more than a few seconds")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "slow" in item.keywords and not config.getoption("slow"):
            item.add_marker(pytest.mark.skip(reason="needs --slow"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of its own for data and runs."""
    monkeypatch.setenv("PMLP_HOME", str(tmp_path))
    return tmp_path
