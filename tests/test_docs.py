"""The documentation builds without a warning, holds every notebook and public name, and loads nothing from another host."""

import importlib
import inspect
import os
import re
import subprocess
import sys

import pytest

from conf import describe_parameters, directives_of, navigation
from draw_map import draw
from repository import NOTEBOOKS, ROOT


def test_every_notebook_is_in_the_navigation():
    listed = re.findall(r"^/nbs/(\S+)$", navigation(), re.MULTILINE)
    assert sorted(listed) == sorted(name for name in NOTEBOOKS if name != "index")


def test_the_map_shows_the_present_imports():
    assert (ROOT / "docs" / "map.svg").read_text(encoding="utf-8") == draw(), "python docs/draw_map.py"


def test_comments_become_parameters():
    def halve(
        number: float,  # any *number*, see `float`
    ) -> float:  # its half
        "Half of a number."
        return number / 2

    lines = ["Half of a number."]
    describe_parameters(None, "function", "halve", halve, None, lines)
    assert lines == ["Half of a number.", "", ":param number: any \\*number\\*, see `float`", ":returns: its half"]


def test_directives_are_read():
    assert directives_of("#| echo: false\n#| fig-alt: two moons\nplot()") == (["echo: false", "fig-alt: two moons"], "plot()")


@pytest.mark.slow
def test_the_code_of_the_readme_runs_as_it_is(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", block], cwd=tmp_path, env=environment, check=True)


@pytest.mark.slow
def test_the_site_is_whole(site):
    for name in NOTEBOOKS:
        assert (site / "nbs" / f"{name}.html").exists()
    for page in (site / "docs" / "api").glob("*.html"):
        module = importlib.import_module(f"pmlp.{page.stem}")
        own = [name for name in module.__all__ if getattr(getattr(module, name), "__module__", "") == module.__name__]
        documented = [name for name in own if inspect.isroutine(getattr(module, name)) or inspect.isclass(getattr(module, name))]
        text = page.read_text(encoding="utf-8")
        assert [name for name in documented if f'id="{module.__name__}.{name}"' not in text] == []
    assert (site / "_static" / "mathjax" / "tex-chtml.js").exists() and (site / "searchindex.js").exists()


@pytest.mark.slow
def test_the_site_loads_nothing_from_another_host(site):
    loaded = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']((?:https?:)?//[^"']+)""")
    found = {page.name: loaded.findall(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}
