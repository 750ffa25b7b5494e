"""What every commit keeps: clean notebooks, modules and README in step with them, no lint, small files, documented names.

Each failure names the command that mends it, for a shell where .venv is active.
"""

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from execnb.nbio import nb2str
from nbdev.clean import clean_nb

from conf import comments_of
from readme import render
from repository import NOTEBOOKS, ROOT, SETTINGS, read_cells, read_code, read_notebook

LARGEST, LARGEST_SUM, MOST_LINES = 600_000, 6_000_000, 100  # bytes of a notebook and of all; lines a cell shows
ABSOLUTE_PATH = re.compile(
    r"(?<![\w./~:}>-])/(?:home|root|work|tmp|Users|private|mnt|media|opt|srv|usr|var)\b"
    r"|\b[A-Z]:\\+(?:Users|Program|Windows|Temp|home|data)"
)
MODULES = {name: found[1] for name, path in NOTEBOOKS.items() if (found := re.search(r"default_exp (\w+)", path.read_text(encoding="utf-8")))}
each_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


def texts(cell):
    """The source of a cell and each of its text outputs."""
    outputs = cell.get("outputs", [])
    data = [text for output in outputs for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return ["".join(text) for text in [cell["source"], *data, *(output.get("text", []) for output in outputs)]]


def shown_lines(output):
    """How many lines an output takes on the page: of text, or rows of a table."""
    data = output.get("data", {})
    if "text/html" in data:
        return "".join(data["text/html"]).count("<tr")
    return len("".join(output.get("text") or data.get("text/markdown") or data.get("text/plain") or []).splitlines())


@each_notebook
def test_a_notebook_is_clean(name):
    notebook = read_notebook(NOTEBOOKS[name])
    clean_nb(notebook, allowed_cell_metadata_keys=SETTINGS["allowed_cell_metadata_keys"].split())
    clean = nb2str(notebook) == NOTEBOOKS[name].read_text(encoding="utf-8")  # a difference in full would fill the screen
    assert clean, "nbdev_clean"


@each_notebook
def test_a_notebook_is_small(name):
    assert NOTEBOOKS[name].stat().st_size <= LARGEST, "draw smaller figures and show fewer rows, then run it again"
    lines = [sum(map(shown_lines, cell.get("outputs", []))) for cell in read_cells(NOTEBOOKS[name])]
    assert max(lines) <= MOST_LINES, f"cell {lines.index(max(lines))} shows too many lines"


@each_notebook
def test_the_figures_of_a_notebook_are_in_it(name):
    cells = [cell for cell in read_cells(NOTEBOOKS[name]) if "plt.show()" in cell["source"]]
    empty = [cell["id"] for cell in cells if not any("image/png" in output.get("data", {}) for output in cell["outputs"])]
    assert empty == [], "run the notebook and save its outputs"


def test_all_notebooks_together_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS.values()) <= LARGEST_SUM


@each_notebook
def test_a_notebook_names_no_path_of_one_machine(name):
    lines = [line[:100] for cell in read_cells(NOTEBOOKS[name]) for text in texts(cell) for line in text.splitlines()]
    assert [line for line in lines if ABSOLUTE_PATH.search(line)] == [], "build the path from the repository's root"


def test_no_file_names_a_path_of_one_machine():
    paths = [path for folder in ("pmlp", "tests", "docs", ".ci") for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".md")]
    found = {path: [line for line in path.read_text(encoding="utf-8").splitlines() if ABSOLUTE_PATH.search(line)] for path in paths}
    assert {path.name: lines for path, lines in found.items() if lines} == {}


# Written in pieces, for this file is checked too.
@pytest.mark.parametrize("path", ["/" + "home/ada/run.json", "saved to /" + "tmp/run.json", "C:" + "\\Users\\ada\\run.json"])
def test_a_path_of_one_machine_is_found(path):
    assert ABSOLUTE_PATH.search(path)


@pytest.mark.parametrize("text", ["outputs/run.json", "https://host.org/home/x", "../data/tmp", r"f:\Omega \to R", "a/root"])
def test_other_paths_are_no_concern(text):
    assert not ABSOLUTE_PATH.search(text)


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name in ("train", "report") or name.startswith(("theory/", "benchmarks/"))])
def test_papermill_finds_one_parameters_cell(name):
    """Without it papermill runs the defaults and says nothing."""
    kinds = [cell["cell_type"] for cell in read_cells(NOTEBOOKS[name]) if "parameters" in cell["metadata"].get("tags", [])]
    assert kinds == ["code"], "tag one code cell `parameters` in JupyterLab"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """What nbdev_export makes of the notebooks and of __init__.py, in a copy."""
    copy = tmp_path_factory.mktemp("export")
    shutil.copy(ROOT / "settings.ini", copy)
    shutil.copytree(ROOT / "nbs", copy / "nbs", ignore=shutil.ignore_patterns(".*"))
    (copy / "pmlp").mkdir()
    shutil.copy(ROOT / "pmlp" / "__init__.py", copy / "pmlp")
    # nbdev_export does nothing where it finds IN_TEST, which nbdev sets while it tests.
    environment = {key: value for key, value in os.environ.items() if key != "IN_TEST"}
    command = [Path(sysconfig.get_path("scripts")) / "nbdev_export"]
    subprocess.run(command, cwd=copy, env=environment, check=True, capture_output=True)
    return copy / "pmlp"


def test_the_modules_are_what_the_notebooks_export(exported):
    made, found = ({path.name: path.read_bytes() for path in folder.glob("*.py")} for folder in (exported, ROOT / "pmlp"))
    differing = {name for name in made | found if made.get(name) != found.get(name)}
    assert differing == set(), "nbdev_export; a module that comes from no notebook is deleted"


def test_the_readme_is_what_the_front_page_makes():
    made = render(nbformat.read(NOTEBOOKS["index"], as_version=4))
    found = [ROOT / "README.md", *(ROOT / "nbs" / "images").glob("index_*")]
    assert {ROOT / name for name in made} == set(found), "python .ci/readme.py"
    assert [name for name, content in made.items() if (ROOT / name).read_bytes() != content] == [], "python .ci/readme.py"


def test_the_readme_follows_directives_and_links():
    output = nbformat.v4.new_output("stream", text="two")
    linked = nbformat.v4.new_output("display_data", {"text/markdown": "[step](training/38_step.ipynb)"})
    cells = [
        nbformat.v4.new_markdown_cell("[config](base/01_config.ipynb), [licence](../LICENSE), [site](https://host.org/x), [place](#here)"),
        nbformat.v4.new_code_cell("#| hide\nhidden = 1"),
        nbformat.v4.new_code_cell("#| echo: false\nsilent = 2", outputs=[output]),
        nbformat.v4.new_code_cell("#| slow\nshown = 3"),
        nbformat.v4.new_code_cell("#| echo: false\nsilent = 4", outputs=[linked]),
    ]
    assert render(nbformat.v4.new_notebook(cells=cells))["README.md"].decode() == (
        "[config](nbs/base/01_config.ipynb), [licence](LICENSE), [site](https://host.org/x), [place](#here)\n\n"
        "    two\n\n```python\nshown = 3\n```\n\n[step](nbs/training/38_step.ipynb)\n"
    )


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "recipes").glob("*.md")], ids=lambda path: path.stem)
def test_links_lead_to_files(path):
    """Those of the notebooks are the documentation's, whose build refuses one that leads nowhere."""
    links = re.findall(r'(?:\]\(|(?:src|href)=")(?![a-z]+:|#)([^)"#\s]+)', path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_ruff_has_no_complaints():
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--no-cache", "--output-format", "concise"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.stdout + run.stderr == "", "ruff check --fix, edit what is left, then nbdev_export"


def what_is_missing(name, documented, shown):
    """What a public function or class lacks for those who read."""
    missing = [] if inspect.getdoc(documented) else ["a docstring"]
    missing += [] if name in shown else ["an example in a cell that exports nothing"]
    return missing + [f"a comment on {key}" for key, comment in comments_of(documented).items() if not comment and key != "return"]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_comments_and_an_example(name):
    module = importlib.import_module(f"pmlp.{MODULES[name]}")
    public = {key: getattr(module, key) for key in module.__all__}
    public = {key: value for key, value in public.items() if inspect.isfunction(value) or inspect.isclass(value)}
    examples = [source for source in read_code(NOTEBOOKS[name]) if not source.startswith(("#| export", "#| default_exp"))]
    shown = set(re.findall(r"\w+", "\n".join(examples)))
    for node in ast.walk(ast.parse(inspect.getsource(module))):  # whoever sees a function called sees what it returns
        if isinstance(node, ast.FunctionDef) and node.name in shown | {"__call__"} and node.returns:
            shown |= set(re.findall(r"\w+", ast.unparse(node.returns)))
    assert [f"{key} lacks {what}" for key, value in public.items() for what in what_is_missing(key, value, shown)] == []


def test_a_missing_comment_is_found():
    def halve(
        number,  # any number
        exact=False,
    ):
        return number / 2

    assert what_is_missing("halve", halve, {"halve"}) == ["a docstring", "a comment on exact"]
    assert what_is_missing("halve", halve, set())[1] == "an example in a cell that exports nothing"
