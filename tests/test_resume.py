"""Runs that are killed, signalled or find a full disk or damaged files, and continue as if nothing had happened."""

import hashlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from helpers import message
from jupyter_client.manager import start_new_kernel

from pmlp.config import preset
from pmlp.records import FORMAT, load_checkpoint, read_history
from pmlp.training import Trainer, run_params

ROOT = Path(__file__).resolve().parent.parent
SHORT = dict(dataset="digits", steps=120, mix_after=8, evaluate_every=15, checkpoint_every=5, labeled_batch=16, unlabeled_batch=32, threshold=0.5)
# Runs main after saying so, and dies in the n-th call of a function of os: 0 is never.
MORTAL = """
import os, signal, sys
from pmlp.training import main
name, left = sys.argv[2], [int(sys.argv[3])]
original = getattr(os, name)

def mortal(*args, **kwargs):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)

setattr(os, name, mortal)
print("begins", flush=True)
main([sys.argv[1], "--resume"])
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PMLP_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def start(home, settings, output, name="fsync", count=0, **options):
    """Begin or continue a run in a process of its own, and return when it has imported everything."""
    file = home / f"{output}.json"
    file.write_text(json.dumps(settings | dict(output=output)))
    command = [sys.executable, "-c", MORTAL, str(file), name, str(count)]
    process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    assert process.stdout.readline() == "begins\n"
    return process


def wait_for_metrics(folder):
    """Wait until a run has been evaluated."""
    deadline = time.monotonic() + 120
    while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").read_bytes():
        assert time.monotonic() < deadline, "the run does not start"
        time.sleep(0.01)


def finish(process):
    """The return code and everything that a process said."""
    said, errors = process.communicate(timeout=300)
    return process.returncode, said + errors


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [tensor for part in parts for tensor in tensors(part)]


def same(one, other):
    """Are the metrics of two folders the same bytes, and all tensors of their last checkpoints the same bits?"""
    states = [load_checkpoint(folder / "checkpoint.pt")["learner"] for folder in (one, other)]
    metrics = [(folder / "metrics.jsonl").read_bytes() for folder in (one, other)]
    results = [json.loads((folder / "result.json").read_text()) | dict(seconds=0) for folder in (one, other)]
    pairs = list(zip(*map(tensors, states), strict=True))
    return len(pairs) > 40 and metrics[0] == metrics[1] and results[0] == results[1] and all(torch.equal(*pair) for pair in pairs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of SHORT, never interrupted."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dict(PMLP_HOME=str(place), PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1").items():
            patch.setenv(name, value)
        assert finish(start(place, SHORT, "run"))[0] == 0
    return place / "run"


def kill_and_continue(home, settings, moments):
    """Kill a run at each moment in turn, then let it end; returns how often it died, and how often in the write of a checkpoint."""
    died, strays = 0, set()
    for name, when in moments:
        process = start(home, settings, "killed", *(() if name == "seconds" else (name, when)))
        if name == "seconds":
            time.sleep(when)
            process.kill()
        code, said = finish(process)
        assert code in (0, -signal.SIGKILL), said
        died += code != 0
        strays |= {path.name for path in (home / "killed").glob(".*.pt.*")}
    code, said = finish(start(home, settings, "killed"))
    assert code == 0, said
    assert not list((home / "killed").glob(".*"))
    return died, len(strays)


def test_killed_three_times(home, whole):
    died, strays = kill_and_continue(home, SHORT, [("fsync", 13), ("replace", 8), ("seconds", 0.5)])
    assert died >= 2 and strays >= 2  # the first two inside the write of a checkpoint
    assert same(whole, home / "killed")


@pytest.mark.slow
def test_the_default_killed_twenty_times(home):
    settings, dice = dict(dataset="digits"), random.Random(0)
    begun = time.perf_counter()
    assert finish(start(home, settings, "whole"))[0] == 0
    seconds = time.perf_counter() - begun
    moments = [("seconds", dice.uniform(0, seconds / 6)) for _ in range(10)]
    moments += [dice.choice([("fsync", 3), ("fsync", 7), ("replace", 1), ("replace", 2), ("replace", 3), ("replace", 5)]) for _ in range(10)]
    dice.shuffle(moments)
    died, strays = kill_and_continue(home, settings, moments)
    print(f"{died} of {len(moments)} attempts killed, {strays} of them inside the write of a checkpoint")
    assert died == 20 and strays >= 8
    assert same(home / "whole", home / "killed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stores_the_run_and_says_how_to_go_on(home, whole, number):
    process = start(home, SHORT, "stopped")
    wait_for_metrics(home / "stopped")
    process.send_signal(number)
    code, said = finish(process)
    assert code == 128 + number and number.name in said and "--resume" in said and "Traceback" not in said, said
    stored = load_checkpoint(home / "stopped" / "checkpoint.pt")["learner"]["iteration"]
    assert 15 <= stored < 120 and f"after iteration {stored}" in said
    assert finish(start(home, SHORT, "stopped"))[0] == 0
    assert same(whole, home / "stopped")


def test_a_finished_run_does_nothing(whole, monkeypatch):
    monkeypatch.setenv("PMLP_HOME", str(whole.parent))
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    code, said = finish(start(whole.parent, SHORT, "run"))
    assert code == 0 and "nothing is left to do" in said
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_notebook_is_interrupted(home):
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        code = f"from pmlp.training import run_params, train; train(run_params({SHORT | dict(steps=10**6)})[0], output='notebook')"
        client.execute(code)
        wait_for_metrics(home / "notebook")
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=60)["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert reply["ename"] == "Stopped" and "SIGINT" in reply["evalue"] and "resume=True" in reply["evalue"]
    assert load_checkpoint(home / "notebook" / "checkpoint.pt")["learner"]["iteration"] > 0


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def signed(value):
    stored = io.BytesIO()
    torch.save(value, stored)
    return stored.getvalue() + hashlib.sha256(stored.getvalue()).digest()


DAMAGES = {
    "truncated": lambda content: content[: len(content) // 2],
    "a flipped bit": lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
    "another version": lambda content: signed({"format": FORMAT + 1}),
    "a foreign pickle": lambda content: pickle.dumps(Trap()),
    "a foreign pickle with its checksum": lambda content: signed({"format": FORMAT, "trap": Trap()}),
    "empty": lambda content: b"",
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run that has ended, as a pattern."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    Trainer(run_params(SHORT | dict(steps=20))[0], output=folder).fit()
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_found(home, ended, monkeypatch, damage):
    monkeypatch.chdir(home)
    config = run_params(SHORT | dict(steps=20))[0]
    folder = home / "run"
    folder.mkdir()
    for path in ended.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    newest, previous = folder / "checkpoint.pt", folder / "previous.pt"
    newest.write_bytes(DAMAGES[damage](newest.read_bytes()))
    with pytest.warns(UserWarning, match="checkpoint.pt .* The run continues from previous.pt"):
        trainer = Trainer(config).resume(folder)
    assert trainer.learner.iteration == 15
    trainer.fit()
    assert same(folder, ended)
    for path in (newest, previous):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="checkpoint.pt .* previous.pt .* start again in a new folder"):
        Trainer(config).resume(folder)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before and not Path("executed").exists()
    with pytest.raises(ValueError, match="checkpoint.pt"):
        Trainer(config).resume(newest)


def test_lost_lines_are_found(ended, home):
    folder = home / "run"
    folder.mkdir()
    for name in ("config.json", "split.json", "checkpoint.pt", "seconds.jsonl"):
        (folder / name).write_bytes((ended / name).read_bytes())
    with pytest.raises(ValueError, match="metrics.jsonl has lost lines"):
        Trainer(run_params(SHORT | dict(steps=20))[0]).resume(folder)


@pytest.mark.parametrize("stored", [True, False])
def test_a_run_that_stops_before_its_first_checkpoint_begins_again(ended, home, stored):
    """Its folder has a line of metrics, and the checkpoint of the beginning or none."""
    config = run_params(SHORT | dict(steps=20, checkpoint_every=20))[0]
    early = Trainer(config, output="early")
    step = early.learner.step
    early.learner.step = lambda: step() if early.learner.iteration < 17 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        early.fit()
    assert read_history(early.folder).index.tolist() == [15]
    if not stored:
        early.checkpoints.newest.unlink()
    late = Trainer(config).resume("early")
    assert late.learner.iteration == 0 and (home / "early" / "metrics.jsonl").read_bytes() == b""
    late.fit()
    assert (home / "early" / "metrics.jsonl").read_bytes() == (ended / "metrics.jsonl").read_bytes()


def test_an_older_checkpoint_becomes_the_newest(ended, home):
    config, folder = run_params(SHORT | dict(steps=20))[0], home / "run"
    shutil.copytree(ended, folder)
    assert Trainer(config).resume(folder / "previous.pt").learner.iteration == 15
    older = Trainer(config).resume(folder)
    assert older.learner.iteration == 15
    older.fit()
    assert same(folder, ended)
    (folder / "result.json").unlink()  # the process died before it wrote the result
    assert Trainer(config).resume(folder).fit()["test_accuracy"] == json.loads((folder / "result.json").read_text())["test_accuracy"]


def test_a_folder_of_another_run_is_refused_and_left_alone(ended):
    config = run_params(SHORT | dict(steps=20))[0]
    before = {path: path.stat().st_mtime_ns for path in ended.rglob("*")}
    for change in (dict(seed=1), dict(bandwidth=2.0)):
        assert "another run" in message(Trainer(config.replace(**change)).resume, ended)
        assert "another run" in message(Trainer, config.replace(**change), output=ended)
    assert "resume=True" in message(Trainer(config, output=ended).fit)
    assert {path: path.stat().st_mtime_ns for path in ended.rglob("*")} == before


def test_outside_of_the_main_thread_training_works_without_signals(home):
    trainer = Trainer(run_params(SHORT | dict(steps=2))[0], output="thread")
    thread = threading.Thread(target=trainer.fit)
    thread.start()
    thread.join()
    assert (home / "thread" / "result.json").exists()


@pytest.mark.parametrize("name", ["newest", "both"])
def test_a_run_of_an_earlier_layout_is_refused_in_one_sentence(ended, home, name):
    folder = home / "run"
    shutil.copytree(ended, folder)
    for path in [folder / "checkpoint.pt"] + [folder / "previous.pt"] * (name == "both"):
        path.write_bytes(signed(load_checkpoint(path) | dict(format=FORMAT - 1)))
    said = message(Trainer(run_params(SHORT | dict(steps=20))[0]).resume, folder)
    assert said.count("earlier layout") == 1 and said.count(". ") == 0 and "start the run again" in said, said


def limit(size):
    """No file may grow beyond this many bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_is_found_before_training_or_leaves_the_last_checkpoint(home, whole):
    last = (whole / "checkpoint.pt").stat().st_size
    first = 2 * last // 3  # without momentum
    code, said = finish(start(home, SHORT, "full", preexec_fn=limit(first // 2)))
    assert code == 1 and "cannot be written (File too large)" in said and "iteration" not in said and "Traceback" not in said, said
    code, said = finish(start(home, SHORT, "fills", preexec_fn=limit((first + last) // 2)))
    assert code == 1 and "File too large" in said and "The last good checkpoint is" in said and "Traceback" not in said, said
    assert load_checkpoint(home / "fills" / "checkpoint.pt")["learner"]["iteration"] == 0
    assert not list((home / "fills").glob(".*"))
    assert finish(start(home, SHORT, "fills"))[0] == 0
    assert same(home / "fills", whole)


@pytest.mark.parametrize("change", [dict(precision="bfloat16"), dict(precision="float16", channels_last=True)])
def test_a_fast_run_continues_to_the_bit(home, change):
    settings = SHORT | dict(steps=20) | change
    whole = Trainer(run_params(settings)[0], output="whole")
    whole.fit()
    half = Trainer(run_params(settings)[0], output="half")
    step = half.learner.step
    half.learner.step = lambda: step() if half.learner.iteration < 12 else os.kill(os.getpid(), signal.SIGTERM) or step()
    with pytest.raises(KeyboardInterrupt):
        half.fit()
    Trainer(run_params(settings)[0]).resume("half").fit()
    assert same(home / "whole", home / "half")


@pytest.mark.slow
def test_two_thousand_iterations_leak_nothing(home):
    config = preset("digits").replace(steps=2000, labeled_batch=16, unlabeled_batch=32, evaluate_every=100, checkpoint_every=50)
    trainer = Trainer(config, output="soak")
    step, memory, handles = trainer.learner.step, [], []

    def watched():
        memory.append(int(Path("/proc/self/statm").read_text().split()[1]))
        handles.append(len(os.listdir("/proc/self/fd")))
        return step()

    trainer.learner.step = watched
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        trainer.fit()
    early, late = (sum(part) / len(part) for part in (memory[500:750], memory[1750:]))
    print(f"memory {late / early - 1:+.2%} from iteration 500 to 2,000, {max(handles) - handles[200]:+} file handles since 200")
    assert abs(late / early - 1) < 0.02
    assert max(handles[200:]) == handles[200]
