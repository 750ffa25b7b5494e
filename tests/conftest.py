"""Tests marked `slow` or `cuda` run only when asked for: pytest tests/ --slow --cuda."""

import hypothesis
import pytest

MARKS = {"slow": "takes more than a few seconds", "cuda": "needs a GPU"}

# A busy machine is no bug: examples may take as long as they need.
hypothesis.settings.register_profile("pmlp", deadline=None)
hypothesis.settings.load_profile("pmlp")


def pytest_addoption(parser):
    for mark, meaning in MARKS.items():
        parser.addoption(f"--{mark}", action="store_true", help=f"also run tests marked {mark}: {meaning}")


def pytest_configure(config):
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")


def pytest_collection_modifyitems(config, items):
    for item in items:
        for mark in MARKS:
            if mark in item.keywords and not config.getoption(mark):
                item.add_marker(pytest.mark.skip(reason=f"needs --{mark}"))
