"""The documentation builds without warnings, holds every notebook and public name, and its links lead somewhere."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import checks

docs = pytest.importorskip("docs", reason="the documentation needs Sphinx: pip install -e '.[cpu,dev]' -c constraints.txt")


@pytest.mark.parametrize(
    "body, problem",
    [
        ('<a href="other.html">x</a>', "page.html leads to other.html, which does not exist"),
        ('<a href="#end">x</a>', "page.html leads to #end, which has no such place"),
        ('<img src="lost.png">', "page.html leads to lost.png, which does not exist"),
        ('<script src="https://host.org/math.js"></script>', "page.html loads https://host.org/math.js from another host"),
        ('<link href="//host.org/style.css">', "page.html loads //host.org/style.css from another host"),
    ],
)
def test_a_broken_link_is_found(tmp_path, body, problem):
    (tmp_path / "page.html").write_text(body, encoding="utf-8")
    assert docs.broken_links(tmp_path) == [problem]


def test_a_good_link_is_no_problem(tmp_path):
    body = '<h1 id="top">x</h1><a href="#top">x</a><a href="a%20b.html#top">x</a><a href="https://host.org">x</a>'
    for name in ("page.html", "a b.html"):
        (tmp_path / name).write_text(body, encoding="utf-8")
    assert docs.broken_links(tmp_path) == []


def test_every_notebook_is_in_the_navigation():
    names = [path.relative_to(ROOT / "nbs").with_suffix("").as_posix() for path in checks.notebooks(ROOT)]
    listed = re.findall(r"^[\w/]+$", docs.navigation(names), re.MULTILINE)
    assert sorted(listed) == sorted([*names, "api", "CONTRIBUTING", "CHANGELOG"][1:])
    with pytest.raises(SystemExit, match="lost"):
        docs.navigation([*names, "lost"])


def test_comments_become_parameters():
    def halve(
        number: float,  # any *number*, see `float`
    ) -> float:  # its half
        "Half of a number."
        return number / 2

    lines = ["Half of a number."]
    docs.describe_parameters(None, "function", "halve", halve, None, lines)
    assert lines == ["Half of a number.", "", ":param number: any \\*number\\*, see `float`", ":returns: its half"]


@pytest.mark.slow
def test_the_code_of_the_readme_runs_as_it_is(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", block], cwd=tmp_path, env=environment, check=True)


@pytest.mark.slow
def test_the_site_is_whole(tmp_path):
    assert docs.build(tmp_path) == []
    assert docs.broken_links(tmp_path) == []
    for path in checks.notebooks(ROOT):
        assert (tmp_path / path.relative_to(ROOT / "nbs").with_suffix(".html")).exists()
    for page in (tmp_path / "api").glob("*.html"):
        module = importlib.import_module(f"pmlp.{page.stem}")
        own = [name for name in module.__all__ if getattr(getattr(module, name), "__module__", "") == module.__name__]
        text = page.read_text(encoding="utf-8")
        documented = [name for name in own if inspect.isroutine(getattr(module, name)) or inspect.isclass(getattr(module, name))]
        assert [name for name in documented if f'id="{module.__name__}.{name}"' not in text] == []
    scripts = [path.name for path in (tmp_path / "_static" / "mathjax").glob("*.js")]
    assert "tex-chtml.js" in scripts and (tmp_path / "searchindex.js").exists()
