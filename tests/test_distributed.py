"""Two processes on this machine, connected by Gloo: the same pseudo-labels and gradients as one, and jobs that lose a process."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import papermill
import pytest
import torch

from pmlp.records import Checkpoints, load_checkpoint, noted_signals, read_history

ROOT = Path(__file__).resolve().parent.parent
SHORT = dict(dataset="digits", steps=120, mix_after=8, evaluate_every=15, checkpoint_every=5, labeled_batch=15, unlabeled_batch=33, threshold=0.5)
# Takes a number of steps and stores the reports of some, and the state at the end.
STEPS = """
import json, sys, torch
from torch import nn
from pmlp.data import draw_split
from pmlp.config import preset
from pmlp.data import load
from pmlp.parallel import join_processes, rank, world_size
from pmlp.step import Learner
from pmlp.views import Views

place, steps, fixed, changes = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "fixed", json.loads(sys.argv[4])
with join_processes(torch.device("cpu")):
    config = preset("digits", method=changes.pop("method", "pmlp")).replace(
        mix_after=1, labeled_batch=15, unlabeled_batch=33, threshold=0.3, similarity_threshold=0.3, learning_rate=0.003, **changes).with_classes(10)
    data = load("digits")
    learner = Learner(config, Views(config, data, draw_split(data.train_labels, 40, seed=0), torch.device("cpu")), 10)
    if fixed:
        for module in learner.network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
    reports = [learner.step() for _ in range(steps)]
    kept = [dict(losses=list(report.losses), labels=report.pseudo.labels, mask=report.pseudo.mask, features=report.features)
            for report in reports if report.pseudo is not None]
    state = learner.state_dict()
    torch.save(dict(reports=kept, network=state["network"], average=state["average"]), f"{place}/{world_size()}-{rank()}.pt")
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name, value in dict(PMLP_HOME=str(tmp_path), PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1").items():
        monkeypatch.setenv(name, value)
    return tmp_path


def torchrun(count, *command, **options):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", *map(str, command)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def run_steps(home, count, steps, kind, changes=None):
    """What each of some processes found."""
    (home / "steps.py").write_text(STEPS)
    process = torchrun(count, home / "steps.py", home, steps, kind, json.dumps(changes or {}))
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    return [torch.load(home / f"{count}-{rank}.pt") for rank in range(count)]


@pytest.mark.parametrize("changes", [{}, dict(method="authors")], ids=["pmlp", "authors"])
def test_with_fixed_batch_norms_two_processes_are_one(home, changes):
    """Pseudo-labels, losses and what the gradients do to the weights; 15 and 33 rows do not divide by two."""
    (alone,), (one, other) = (run_steps(home, count, 4, "fixed", changes) for count in (1, 2))
    for expected, found, again in zip(alone["reports"], one["reports"], other["reports"], strict=True):
        torch.testing.assert_close(found["labels"], expected["labels"], rtol=0, atol=1e-5)
        torch.testing.assert_close(found["losses"], expected["losses"], rtol=0, atol=1e-5)
        torch.testing.assert_close(found["features"], expected["features"], rtol=0, atol=1e-5)
        assert torch.equal(found["mask"], expected["mask"])
        assert all(torch.equal(found[name], again[name]) for name in ("labels", "mask", "features"))
    shares = [report["mask"].float().mean() for report in alone["reports"]]
    assert any(0 < share < 1 for share in shares)  # some pseudo-labels counted and some did not
    for name, expected in alone["network"].items():
        torch.testing.assert_close(one["network"][name], expected, rtol=0, atol=1e-5)


def test_weights_are_equal_after_fifty_steps(home):
    one, other = run_steps(home, 2, 50, "moving", dict(supervised_warmup=5))
    for part in ("network", "average"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])
    assert len(one["reports"]) == 45


def job(home, count, output, *options, **settings):
    """A job that trains, as a process."""
    file = home / f"{output}.json"
    file.write_text(json.dumps(SHORT | settings | dict(output=output)))
    return torchrun(count, "-m", "pmlp.training", file, *options, cwd=home)


def ended(process):
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    return said


def stored_iteration(folder):
    """The iteration of the newest checkpoint, also while the next one takes its place; -1 if there is none."""
    with warnings.catch_warnings(action="ignore"):  # that the newest is just being replaced
        state = Checkpoints(folder).load()
    return -1 if state is None else state["learner"]["iteration"]


def wait_for_iteration(folder, iteration):
    """Wait until a checkpoint of this iteration, or of a later one, is stored: its line of metrics is there before."""
    deadline = time.monotonic() + 120
    while stored_iteration(folder) < iteration:
        assert time.monotonic() < deadline, "the job does not start"
        time.sleep(0.02)


def workers(process):
    """The processes that torchrun started, in their order."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout
    return sorted(map(int, listed.split()))


def states(*folders):
    found = [load_checkpoint(folder / "checkpoint.pt")["learner"] for folder in folders]
    return [torch.cat([value.flatten().double() for part in ("network", "average") for value in state[part].values()]) for state in found]


def test_a_job_that_loses_a_process_says_so_and_resumes(home):
    ended(job(home, 2, "whole"))
    process = job(home, 2, "killed")
    wait_for_iteration(home / "killed", 15)
    os.kill(workers(process)[1], signal.SIGKILL)
    begun = time.monotonic()
    said = process.communicate(timeout=60)[0]
    seconds = time.monotonic() - begun
    print(f"the job ended {seconds:.1f} seconds after one of its processes was killed")
    assert seconds < 10 and process.returncode == 1
    assert "another process of this job has ended" in said and "SIGKILL" in said, said
    said = ended(job(home, 2, "killed", "--resume"))
    assert "iteration 15:" not in said and "iteration 120:" in said
    assert (home / "killed" / "metrics.jsonl").read_bytes() == (home / "whole" / "metrics.jsonl").read_bytes()
    assert torch.equal(*states(home / "killed", home / "whole"))


@pytest.mark.parametrize("processes", [1, 2])
def test_the_error_of_a_broken_job_is_told_before_torchrun_ends_it(monkeypatch, processes):
    monkeypatch.setattr("pmlp.records.world_size", lambda: processes)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(RuntimeError, match="reset by peer"), noted_signals():
            raise RuntimeError("Connection reset by peer")
        assert (signal.getsignal(signal.SIGTERM) is signal.SIG_IGN) == (processes > 1)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_job_that_is_stopped_resumes_on_another_number_of_processes(home):
    process = job(home, 2, "moved")
    wait_for_iteration(home / "moved", 15)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert said.count("stopped by SIGTERM after iteration") == 1 and "--resume" in said, said
    stored = stored_iteration(home / "moved")
    process = job(home, 1, "moved", "--resume")
    wait_for_iteration(home / "moved", stored + 1)
    process.send_signal(signal.SIGTERM)
    assert "stopped by SIGTERM after iteration" in process.communicate(timeout=60)[0]
    assert stored < stored_iteration(home / "moved") < 120
    ended(job(home, 3, "moved", "--resume"))
    assert read_history(home / "moved").index.tolist() == list(range(15, 121, 15))
    assert "nothing is left to do" in ended(job(home, 2, "moved", "--resume"))


def test_bad_input_is_one_sentence_from_one_process(home):
    process = job(home, 2, "bad", n_labels=41)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 1 and said.count("n_labels=41 does not divide by 10") == 1 and not (home / "bad").exists()


def test_a_notebook_trains_in_two_processes(home):
    parameters = dict(dataset="digits", steps=24, evaluate_every=12, processes=2, output="notebook", overrides=json.dumps(dict(unlabeled_batch=32)))
    papermill.execute_notebook(ROOT / "nbs" / "train.ipynb", home / "run.ipynb", parameters=parameters, progress_bar=False)
    assert read_history(home / "notebook").index.tolist() == [12, 24]
    text = (home / "run.ipynb").read_text()
    outputs = [output for cell in json.loads(text)["cells"] for output in cell.get("outputs", [])]
    assert "iteration 24: accuracy" in text and sum("image/png" in output.get("data", {}) for output in outputs) == 5
