"""Each check of the test command finds its own kind of damage, and an untouched copy passes all of them."""

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import checks
import reading


@pytest.fixture
def copy(tmp_path):
    """A copy of everything the checks read."""
    ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for folder in ("nbs", "pmlp", "tests", ".ci"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for file in ("settings.ini", "setup.py", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


def edit_cells(path, edit):
    """Change a notebook's list of cells and write it as nbdev does."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    edit(notebook["cells"])
    path.write_text(json.dumps(notebook, sort_keys=True, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def code_cell(source, **changes):
    cell = {
        "cell_type": "code",
        "id": "new",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": [source],
    }
    return {**cell, **changes}


def test_an_untouched_copy_passes(copy):
    every = checks.CHECKS + reading.CHECKS
    assert {name: check(copy) for name, check, _ in every} == {name: [] for name, _, _ in every}


def test_a_clean_new_cell_passes(copy):
    edit_cells(copy / "nbs" / "index.ipynb", lambda cells: cells.append(code_cell("1 + 1")))
    assert checks.unclean_notebooks(copy) == []


def test_a_dirty_notebook(copy):
    edit_cells(copy / "nbs" / "index.ipynb", lambda cells: cells.append(code_cell("1 + 1", execution_count=7)))
    (problem,) = checks.unclean_notebooks(copy)
    assert "nbs/index.ipynb has execution counts" in problem


def test_a_hand_edit(copy):
    module = copy / "pmlp" / "config.py"
    module.write_text(module.read_text(encoding="utf-8") + "\nEXTRA = 1\n", encoding="utf-8")
    assert checks.export_differences(copy) == ["pmlp/config.py is not what its notebook exports"]


def test_a_stray_module(copy):
    (copy / "pmlp" / "stray.py").write_text("EXTRA = 1\n", encoding="utf-8")
    (problem,) = checks.export_differences(copy)
    assert "pmlp/stray.py comes from no notebook" in problem


def test_a_stale_readme(copy):
    edit_cells(copy / "nbs" / "index.ipynb", lambda cells: cells[0]["source"].append("\n\nA new sentence."))
    assert checks.stale_readme(copy) == ["README.md is not what nbs/index.ipynb makes"]


def test_a_star_import(copy):
    edit_cells(copy / "nbs" / "index.ipynb", lambda cells: cells.append(code_cell("from math import *")))
    assert any("index.ipynb" in problem and "F403" in problem for problem in checks.lint(copy))


@pytest.mark.parametrize("name", ["train", "05_theory"])
def test_a_removed_parameters_tag(copy, name):
    def remove_tags(cells):
        for cell in cells:
            cell["metadata"] = {}

    edit_cells(copy / "nbs" / f"{name}.ipynb", remove_tags)
    (problem,) = checks.missing_parameters(copy)
    assert f"nbs/{name}.ipynb has 0 cells tagged `parameters`" in problem


def test_a_large_notebook(copy):
    picture = {"data": {"image/png": "A" * 5_000_000}, "metadata": {}, "output_type": "display_data"}
    edit_cells(copy / "nbs" / "index.ipynb", lambda cells: cells.append(code_cell("1 + 1", outputs=[picture])))
    alone, together = checks.large_notebooks(copy)
    assert "nbs/index.ipynb has 5" in alone and "more than 600" in alone
    assert "all notebooks have" in together and "more than 5" in together


@pytest.mark.parametrize(
    "output",
    [
        {"name": "stdout", "output_type": "stream", "text": ["line\n"] * 101},
        {"data": {"text/html": ["<tr></tr>\n"] * 101, "text/plain": ["short"]}, "output_type": "display_data"},
        {"data": {"text/markdown": ["line\n"] * 101, "text/plain": ["short"]}, "output_type": "display_data"},
    ],
)
def test_a_long_output(copy, output):
    edit_cells(copy / "nbs" / "index.ipynb", lambda cells: cells.append(code_cell("1 + 1", outputs=[output])))
    (problem,) = checks.large_notebooks(copy)
    assert "nbs/index.ipynb, cell" in problem and "shows 101 lines, more than 100" in problem


# Written in pieces, for this file is checked too.
@pytest.mark.parametrize("path", ["/" + "home/ada/run.json", "/" + "tmp/run.json", "C:" + "\\Users\\ada\\run.json"])
def test_an_absolute_path(copy, path):
    output = {"name": "stdout", "output_type": "stream", "text": [f"saved to {path}\n"]}
    edit_cells(copy / "nbs" / "index.ipynb", lambda cells: cells.append(code_cell("1 + 1", outputs=[output])))
    (copy / "pmlp" / "stray.py").write_text(f"PATH = r'{path}'\n", encoding="utf-8")
    in_output, in_module = checks.absolute_paths(copy)
    assert "nbs/index.ipynb, output of cell" in in_output
    assert "pmlp/stray.py, source" in in_module


@pytest.mark.parametrize(
    "text", ["outputs/run.json", "https://host.org/home/x", "../data/tmp", r"f:\Omega \to R", "a/root"]
)
def test_what_is_no_absolute_path(text):
    assert not checks.ABSOLUTE_PATH.search(text)


def test_the_readme_follows_directives_and_links(copy):
    cells = [
        {
            "cell_type": "markdown",
            "id": "a",
            "metadata": {},
            "source": ["[config](00_config.ipynb), [site](https://host.org/x)"],
        },
        code_cell("#| hide\nhidden = 1", id="b"),
        code_cell(
            "#| echo: false\nsilent = 2", id="c", outputs=[{"name": "stdout", "output_type": "stream", "text": ["two"]}]
        ),
        code_cell("#| slow\nshown = 3", id="d"),
    ]
    edit_cells(copy / "nbs" / "index.ipynb", lambda old: old.__setitem__(slice(None), cells))
    text = checks.readme.render(copy)["README.md"].decode()
    assert text == (
        "[config](nbs/base/01_config.ipynb), [site](https://host.org/x)\n\n    two\n\n```python\nshown = 3\n```\n"
    )


@pytest.mark.parametrize("words", ["# Neighbours", "> Exact", "**Read before:**", "**Running time:**", "**Reading time:**"])
def test_an_opening_without_its_parts(copy, words):
    path = copy / "nbs" / "01_neighbors.ipynb"

    def remove(cells):
        assert words in "".join(cells[0]["source"])
        cells[0]["source"] = ["".join(cells[0]["source"]).replace(words, "", 1)]

    edit_cells(path, remove)
    (problem,) = [problem for problem in reading.openings(copy) if "01_neighbors" in problem]
    assert "opens without" in problem


def test_code_before_prose(copy):
    edit_cells(copy / "nbs" / "explore.ipynb", lambda cells: cells.insert(0, code_cell("1 + 1")))
    assert any("explore" in problem for problem in reading.openings(copy))


@pytest.mark.parametrize("damage", ["unfolded", "untagged", "unchecked", "missing"])
def test_a_solution_that_is_open_or_proves_nothing(copy, damage):
    def edit(cells):
        if damage == "missing":
            del cells[-1]
        elif damage == "unchecked":
            cells[-1]["source"] = ["# Solution 2: trust me\n", "1 + 1"]
        elif damage == "untagged":
            del cells[-1]["metadata"]["tags"]
        else:
            del cells[-1]["metadata"]["jupyter"]["source_hidden"]

    edit_cells(copy / "nbs" / "02_density.ipynb", edit)
    (problem,) = reading.unfolded_solutions(copy)
    assert "nbs/graph/12_density.ipynb" in problem


@pytest.mark.parametrize(
    "source, missing",
    [
        ("def shown(a): return a", ["no docstring", "no comment on a"]),
        ('def shown(\n    a,\n    b,  # second\n):\n    "Adds."\n    return a + b', ["no comment on a"]),
        ('def unseen(\n    a,  # first\n):\n    "Adds."\n    return a', ["no example"]),
        ('class shown:\n    "A pair."\n    a: int  # first\n    b: int', ["no comment on b"]),
        ('def _hidden(a): return a', []),
    ],
)
def test_a_public_name_without_comments_or_example(copy, source, missing):
    cells = [code_cell(f"#| export\n{source}"), code_cell("shown")]
    edit_cells(copy / "nbs" / "01_neighbors.ipynb", lambda old: old.extend(cells))
    problems = [problem for problem in reading.undocumented_names(copy) if "01_neighbors" in problem]
    assert len(problems) == len(missing) and all(part in problem for part, problem in zip(missing, problems))
