"""Fields hold what their annotations say, files are whole, and the repository, seeds and versions are found."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from helpers import message

from pmlp.basics import (
    Bandwidth, Count, Device, Momentum, NonNegative, OpenFraction, Positive, PositiveShare, Seed, Share, Text, Whole, check,
    code_version, data_folder, outputs_folder, read_object, repo_root, seed_everything, write_atomically,
)

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("annotation, wrong", [
    (Count, True), (Count, 0), (Count, 2.0), (Count, "2"), (Count, None), (Whole, -1), (Seed, 2**32), (Seed, -1),
    (Share, 1.01), (Share, -0.01), (Share, math.nan), (Share, False), (Share, "0.5"), (Share, 10**400),
    (OpenFraction, 0), (OpenFraction, 1), (Momentum, 1), (Momentum, -0.1), (PositiveShare, 0), (PositiveShare, 2),
    (Positive, math.inf), (Positive, "inf"), (Positive, 0), (NonNegative, math.inf), (NonNegative, -1e-9),
    (Bandwidth, 0), (Bandwidth, math.nan), (Bandwidth, -math.inf), (Bandwidth, "nan"), (Bandwidth, None),
    (bool, 1), (bool, "True"), (bool, None), (Text, ""), (Text, " "), (Text, "a\nb"), (Text, 3),
    (Device, "gpu"), (Device, "cuda:"), (Device, "cuda:x"), (Literal["a", "b"], "c"), (Literal["a", "b"], ["a"]),
    (Count | None, 0), (Literal["a"] | Share, 1.5),
])  # fmt: skip
def test_a_wrong_value_is_refused_by_name(annotation, wrong):
    assert message(check, "field", annotation, wrong).startswith("field=")


@pytest.mark.parametrize("annotation, value, stored", [
    (Count, 3, 3), (bool, False, False), (OpenFraction | None, 0.5, 0.5), (Bandwidth, 3, 3.0), (Bandwidth, "inf", math.inf),
    *[(Device, device, device) for device in ("auto", "cpu", "mps", "cuda", "cuda:0", "cuda:12")],
])  # fmt: skip
def test_a_right_value_is_stored(annotation, value, stored):
    given = check("field", annotation, value)
    assert given == stored and type(given) is type(stored)


def test_the_message_says_what_is_allowed():
    assert message(check, "bandwidth", Bandwidth, -1) == "bandwidth=-1 is not allowed: give a number above 0, or inf."


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path):
    file = tmp_path / "kernel.json"
    write_atomically(file, '{"points": 1}')
    write_atomically(file, '{"points": 7}')
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "\ud800")
    assert read_object(file) == {"points": 7} and os.listdir(tmp_path) == ["kernel.json"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"[" * 100_000, b"3", b"[]", b"import os"])
def test_what_is_no_object_is_refused(tmp_path, content):
    file = tmp_path / "kernel.json"
    file.write_bytes(content)
    assert message(read_object, file).startswith("kernel.json ")


def test_the_repository_is_the_nearest_folder_that_says_so(tmp_path, monkeypatch):
    deep, outside = tmp_path / "clone" / "nbs" / "benchmarks", tmp_path / "outside"
    deep.mkdir(parents=True)
    outside.mkdir()
    (tmp_path / "settings.ini").write_text("[DEFAULT]\nlib_name = other\n")
    (tmp_path / "clone" / "settings.ini").write_text("[DEFAULT]\nlib_name = pmlp\n")
    (tmp_path / "clone" / "nbs" / "settings.ini").write_text("no ini file")
    monkeypatch.delenv("PMLP_HOME", raising=False)
    monkeypatch.chdir(deep)
    assert repo_root() == tmp_path / "clone" and data_folder() == tmp_path / "clone" / "data"
    monkeypatch.chdir(outside)  # the clone that was installed with pip install -e, or else the working directory
    assert repo_root() in (ROOT, outside)
    monkeypatch.setenv("PMLP_HOME", str(tmp_path / "elsewhere"))
    assert repo_root() == tmp_path / "elsewhere" and outputs_folder() == tmp_path / "elsewhere" / "outputs"


def test_the_repository_is_found_from_its_folders(monkeypatch):
    monkeypatch.delenv("PMLP_HOME", raising=False)
    for folder in [ROOT, ROOT / "nbs", ROOT / "tests"]:
        monkeypatch.chdir(folder)
        assert repo_root() == ROOT


def test_an_installed_package_without_repository_uses_the_working_directory(tmp_path):
    (tmp_path / "site" / "pmlp").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    (tmp_path / "site" / "pmlp" / "__init__.py").write_text("")
    (tmp_path / "site" / "pmlp" / "basics.py").write_text((ROOT / "pmlp" / "basics.py").read_text(encoding="utf-8"), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PMLP_HOME"} | {"PYTHONPATH": str(tmp_path / "site")}
    script = "import pmlp.basics as b; print(b.__file__); print(b.outputs_folder()); print(b.data_folder())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path / "work", env=environment, check=True)
    work = (tmp_path / "work").resolve()
    assert done.stdout.split("\n")[1:3] == [str(work / "outputs"), str(work / "data")]
    assert done.stdout.startswith(str(tmp_path))


def test_a_seed_out_of_range_is_refused():
    assert message(seed_everything, -1).startswith("seed=-1")


def test_only_modules_count_in_the_version(tmp_path):
    (tmp_path / "config.py").write_text("alpha = 1\n")
    before = code_version(tmp_path)
    (tmp_path / "notes.txt").write_text("no module")
    assert code_version(tmp_path) == before
    (tmp_path / "config.py").write_text("")
    assert code_version(tmp_path) != before
