"""The package is light to import, says what is missing, and works as a wheel outside of the repository."""

import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
from importlib import import_module

import pytest

import pmlp
from repository import ROOT, SETTINGS


def run(code):
    """Run code in a fresh interpreter at the root and return what it prints."""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_import_alone_loads_nothing_heavy():
    code = "import pmlp, sys; dir(pmlp); print({'torch', 'faiss', 'numpy', 'matplotlib'} & sys.modules.keys())"
    assert run(code) == "set()"


@pytest.mark.parametrize("name", pmlp.__all__)
def test_a_name_is_that_of_its_module(name):
    assert name in dir(pmlp)
    assert getattr(pmlp, name) is getattr(import_module(f"pmlp.{pmlp._OWNERS[name]}"), name)


def test_the_names_are_the_same_for_editors_and_at_run_time():
    source = (ROOT / "pmlp" / "__init__.py").read_text(encoding="utf-8")
    typed = {name: owner for owner, names in re.findall(r"^    from pmlp\.(\w+) import (.+)$", source, re.M) for name in names.split(", ")}
    assert typed == pmlp._OWNERS and set(typed) == set(pmlp.__all__)


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match="'pmlp' has no attribute 'nothing'"):
        pmlp.nothing  # noqa: B018


@pytest.mark.parametrize("module", pmlp._MOVED)
def test_a_pickle_that_names_a_module_of_before_says_so(module):
    code = f"""
import pickle
try:
    pickle.loads(b"cpmlp.{module}\\nTable\\n.")
except ModuleNotFoundError as error:
    print(error)
"""
    home = pmlp._MOVED[module]
    assert run(code) == f"pmlp.{module} is now part of pmlp.{home}: import it from there; a model saved before must be fitted again."
    assert (ROOT / "pmlp" / f"{home}.py").exists() and not (ROOT / "pmlp" / f"{module}.py").exists()


def test_neighbors_without_faiss_names_the_command():
    code = """
import sys
sys.modules["faiss"] = None
try:
    import pmlp.neighbors
except ImportError as error:
    print(error)
"""
    message = run(code)
    assert "pip install 'pmlp[cpu]'" in message
    assert len(message.splitlines()) == 1


def test_version_is_that_of_the_settings():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert pmlp.__version__ == SETTINGS["version"] == re.search(r"^version: (.+)$", citation, re.M)[1]


def outside(python, folder, *arguments):
    """What a Python prints in another folder, without knowing this one."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PMLP"))}
    run = subprocess.run([python, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of a fresh environment with the wheel in it, which sees the requirements that are here, but not the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    skipped = shutil.ignore_patterns(".*", "nbs", "data", "outputs", "tests", "docs", "_docs", "build", "dist", "*.egg-info")
    copy = shutil.copytree(ROOT, folder / "copy", ignore=skipped)
    outside(sys.executable, folder, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, copy)
    shutil.rmtree(copy)
    venv.create(folder / "venv")
    found = folder / "venv" / "bin" / "python"
    outside(sys.executable, folder, "-m", "pip", "--python", found, "install", "--no-index", "--no-deps", *folder.glob("*.whl"))
    (packages,) = (folder / "venv").glob("lib/*/site-packages")
    (packages / "requirements.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return found


def test_the_wheel_carries_its_description(python, tmp_path):
    code = "import importlib.resources as r, importlib.metadata as m, pmlp; print(r.files(pmlp).joinpath('py.typed').is_file(), m.metadata('pmlp').json)"
    typed, metadata = outside(python, tmp_path, "-c", code).split(maxsplit=1)
    assert typed == "True"
    for part in ("classifier", "keywords", "requires_python", "author", "summary"):
        assert f"'{part}'" in metadata


def test_the_first_example_runs_from_the_wheel(python, tmp_path):
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    assert str(python.parent.parent) in outside(python, tmp_path, "-c", f"{example}\nimport pmlp\nprint(pmlp.__file__)")


def test_training_runs_from_the_wheel(python, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(dict(dataset="digits", steps=4, labeled_batch=16, unlabeled_batch=32)), encoding="utf-8")
    outside(python, tmp_path, "-m", "pmlp.training", "run.json")
    (result,) = tmp_path.rglob("result.json")
    assert json.loads(result.read_text(encoding="utf-8"))["config"]["steps"] == 4
