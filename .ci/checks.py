"""What the test command checks before it runs anything; each check takes the root and returns its problems."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from configparser import ConfigParser
from pathlib import Path
from tempfile import TemporaryDirectory

from execnb.nbio import nb2str
from nbdev.clean import clean_nb

import readme

ABSOLUTE_PATH = re.compile(
    r"(?<![\w./~:}>-])/(?:home|root|work|tmp|Users|private|mnt|media|opt|srv|usr|var)\b"
    r"|\b[A-Z]:\\+(?:Users|Program|Windows|Temp|home|data)"
)

# Of one notebook and of all, in bytes; of what one cell shows.
LARGEST, LARGEST_SUM, MOST_LINES = 600_000, 5_000_000, 100


def notebooks(root):
    """All notebooks in reading order: the front page, the numbered ones, train, then the benchmarks."""
    folder = root / "nbs"
    found = (path for path in folder.rglob("*.ipynb") if not re.search(r"/[._]", path.relative_to(root).as_posix()))
    return sorted(found, key=lambda path: (path.parent != folder, path.stem != "index", path))


def read_notebook(path):
    return json.loads(path.read_text(encoding="utf-8"))


def unclean_notebooks(root):
    """Notebooks that nbdev_clean would change: execution counts, stray metadata, object addresses."""
    parser = ConfigParser()
    parser.read(root / "settings.ini", encoding="utf-8")
    kept = parser["DEFAULT"]["allowed_cell_metadata_keys"].split()
    problems = []
    for path in notebooks(root):
        notebook = read_notebook(path)
        clean_nb(notebook, allowed_cell_metadata_keys=kept)
        if nb2str(notebook) != path.read_text(encoding="utf-8"):
            problems.append(
                f"{path.relative_to(root)} has execution counts, metadata or a layout that git should not see"
            )
    return problems


def modules(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in (root / "pmlp").rglob("*.py")}


def export_differences(root):
    """Modules that are not what the notebooks export, found by exporting a copy."""
    with TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copy(root / "settings.ini", copy)
        shutil.copytree(root / "nbs", copy / "nbs", ignore=shutil.ignore_patterns(".*"))
        # nbdev_export does nothing while nbdev_test runs, which it reads from IN_TEST.
        environment = {key: value for key, value in os.environ.items() if key != "IN_TEST"}
        command = [Path(sysconfig.get_path("scripts")) / "nbdev_export"]
        export = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
        if export.returncode:
            return ["nbdev_export fails:", *export.stderr.splitlines()[-5:]]
        expected, found = modules(copy), modules(root)
    changed = [
        f"{path} is not what its notebook exports" for path in expected if found.get(path, b"") != expected[path]
    ]
    stray = [
        f"{path} comes from no notebook: write a notebook for it, or delete it" for path in found.keys() - expected
    ]
    return sorted(changed + stray)


def stale_readme(root):
    """README.md or an image of it that nbs/index.ipynb would make otherwise."""
    return [f"{path} is not what nbs/index.ipynb makes" for path in readme.out_of_step(root)]


def lint(root):
    """What ruff says about modules, tests, scripts and notebooks."""
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--no-cache", "--output-format", "concise"]
    targets = ["pmlp", "tests", ".ci", "setup.py", "nbs"]
    ruff = subprocess.run([*command, "--config", ".ci/ruff.toml", *targets], cwd=root, capture_output=True, text=True)
    return (ruff.stdout + ruff.stderr).splitlines()


def missing_parameters(root):
    """Without a tagged cell papermill runs the defaults and says nothing."""
    problems = []
    folder = root / "nbs"
    for path in [folder / "train.ipynb", folder / "report.ipynb", *sorted(folder.glob("05*.ipynb")), *sorted((folder / "benchmarks").glob("*.ipynb"))]:
        cells = read_notebook(path)["cells"]
        tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
        if [cell["cell_type"] for cell in tagged] != ["code"]:
            problems.append(
                f"{path.relative_to(root)} has {len(tagged)} cells tagged `parameters`, papermill needs one code cell"
            )
    return problems


def texts(notebook):
    """Yield a name and the text of each cell's source and of each text output."""
    for number, cell in enumerate(notebook["cells"]):
        yield f"cell {number}", "".join(cell["source"])
        for output in cell.get("outputs", []):
            data = [value for kind, value in output.get("data", {}).items() if kind.startswith("text/")]
            for part in [output.get("text", []), output.get("traceback", []), *data]:
                yield f"output of cell {number}", "".join(part)


def absolute_paths(root):
    """Paths that exist only on one machine, in notebooks and their outputs, modules and tests."""
    named = [(path, name, text) for path in notebooks(root) for name, text in texts(read_notebook(path))]
    for folder in ("pmlp", "tests"):
        named += [(path, "source", path.read_text(encoding="utf-8")) for path in sorted((root / folder).rglob("*.py"))]
    return [
        f"{path.relative_to(root)}, {name}: {line.strip()[:100]}"
        for path, name, text in named
        for line in text.splitlines()
        if ABSOLUTE_PATH.search(line)
    ]


def lines_of(output):
    """How many lines an output takes on the page: of text, or rows of a table."""
    data = output.get("data", {})
    if "text/html" in data:
        return "".join(data["text/html"]).count("<tr")
    shown = output.get("text") or output.get("traceback") or data.get("text/markdown") or data.get("text/plain") or []
    return len("".join(shown).splitlines())


def large_notebooks(root):
    """Notebooks that are too large for git, and cells that print more than a reader reads."""
    paths = notebooks(root)
    sizes = {path: path.stat().st_size for path in paths}
    problems = [
        f"{path.relative_to(root)} has {size / 1e3:.0f} KB, more than {LARGEST / 1e3:.0f}"
        for path, size in sizes.items()
        if size > LARGEST
    ]
    if sum(sizes.values()) > LARGEST_SUM:
        problems.append(f"all notebooks have {sum(sizes.values()) / 1e6:.2f} MB, more than {LARGEST_SUM / 1e6:.0f}")
    for path in paths:
        for number, cell in enumerate(read_notebook(path)["cells"]):
            lines = sum(lines_of(output) for output in cell.get("outputs", []))
            if lines > MOST_LINES:
                problems.append(f"{path.relative_to(root)}, cell {number} shows {lines} lines, more than {MOST_LINES}")
    return problems


# In the order they run: what should hold, the check, and what to do when it does not.
CHECKS = [
    ("notebooks are clean", unclean_notebooks, "nbdev_clean"),
    ("pmlp/ equals what the notebooks export", export_differences, "nbdev_export"),
    ("README.md equals what nbs/index.ipynb makes", stale_readme, "python .ci/readme.py"),
    ("ruff has no complaints", lint, "ruff check --fix --config .ci/ruff.toml nbs tests .ci, edit what is left, then nbdev_export"),
    ("papermill notebooks have their parameters cell", missing_parameters, "tag the cell `parameters` in JupyterLab"),
    ("notebooks are small", large_notebooks, "draw smaller figures and show fewer rows, then run the notebook again"),
    ("no absolute paths", absolute_paths, "build the path from the repository's root, then run the notebook again"),
]
