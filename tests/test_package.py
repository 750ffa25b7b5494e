"""The package is light to import, says what is missing, and carries the version of settings.ini."""

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from statistics import median

import pmlp

ROOT = Path(__file__).resolve().parent.parent


def run(code):
    """Run code in a fresh interpreter at the root and return what it prints."""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_import_is_quick():
    code = "import torch, time; start = time.perf_counter(); import pmlp; print(time.perf_counter() - start)"
    assert median(float(run(code)) for _ in range(3)) < 0.5


def test_import_leaves_the_heavy_packages_alone():
    code = "import pmlp, sys; print({'faiss', 'matplotlib', 'torchvision'} & sys.modules.keys())"
    assert run(code) == "set()"


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
    parser = ConfigParser()
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    assert pmlp.__version__ == parser["DEFAULT"]["version"]
