"""Runs from the outside: every method, every preset, two runs of one seed, and input that is refused before anything is written."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import papermill
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pmlp.data import Images
from pmlp.config import METHODS, PAPER_SETTINGS, Config, preset
from pmlp.records import read_history
from pmlp.training import Trainer, run_params, train

ROOT = Path(__file__).resolve().parent.parent
SHORT = dict(dataset="digits", steps=24, mix_after=8, evaluate_every=12, checkpoint_every=12, labeled_batch=16, unlabeled_batch=32)
pytestmark = pytest.mark.usefixtures("home")


def noise(count, shape, classes):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % classes
    return Images(images, labels, images[:512], labels[:512], images[:600], tuple(map(str, range(classes))))


def weights(trainer):
    return [value for part in ("network", "average") for value in trainer.learner.state_dict()[part].values()]


def same(one, other):
    return all(torch.equal(first, second) for first, second in zip(weights(one), weights(other), strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_leaves_its_records(home, method):
    config, _, _ = run_params(SHORT | dict(method=method))
    trainer = train(config, output="outputs/run")
    folder = home / "outputs" / "run"
    result = json.loads((folder / "result.json").read_text())
    assert result["method"] == method and result["steps"] == 24 and 0 < result["test_accuracy"] <= 1
    assert Config(**result["config"]) == Config.load(folder / "config.json") == trainer.config
    history = read_history(folder)
    assert history.index.tolist() == [12, 24] and history.test_accuracy.iloc[-1] == result["test_accuracy"]
    propagates = method in ("pmlp", "authors", "lassl")
    assert (history.mixed.iloc[-1] == 1) == propagates
    assert history.confident.isna().all() == (method == "supervised")
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("test_accuracy")] == [12, 24]


def test_two_runs_of_one_seed_are_one_and_seeds_differ():
    config, _, _ = run_params(SHORT | dict(threshold=0.5))
    one, two = train(config, output="one"), train(config, output="two")
    assert same(one, two) and (one.folder / "metrics.jsonl").read_bytes() == (two.folder / "metrics.jsonl").read_bytes()
    assert not same(one, train(config.replace(seed=1), output="three"))


def test_lassl_is_pmlp_with_an_infinite_bandwidth_to_the_bit():
    config, _, _ = run_params(SHORT | dict(threshold=0.5, similarity_threshold=0.3, steps=48))
    infinite = train(config.replace(bandwidth=math.inf), output="infinite")
    plain = train(config.replace(method="lassl", density=None), output="lassl")
    assert plain.history.mixed.iloc[-1] == 1 and plain.history.moved.iloc[-1] > 0.01  # propagated labels were mixed in
    assert plain.history.confident.iloc[-1] > 0.05  # and counted
    assert same(infinite, plain)
    assert not same(plain, train(config, output="five"))


def test_a_shell_and_a_notebook_run_the_same_loop(home):
    (home / "run.json").write_text(json.dumps(SHORT | dict(output="shell")))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "pmlp.training", "run.json"], cwd=home, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parameters = {name: SHORT[name] for name in ("dataset", "steps", "evaluate_every")} | dict(output="notebook")
    overrides = {name: value for name, value in SHORT.items() if name not in parameters}
    parameters["overrides"] = json.dumps(overrides)
    papermill.execute_notebook(ROOT / "nbs" / "train.ipynb", home / "run.ipynb", parameters=parameters, progress_bar=False)
    assert (home / "shell" / "metrics.jsonl").read_bytes() == (home / "notebook" / "metrics.jsonl").read_bytes()
    outputs = [output for cell in json.loads((home / "run.ipynb").read_text())["cells"] for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    assert any("24/24" in "".join(output.get("data", {}).get("text/plain", "")) for output in outputs)


def arrays(**changes):
    x, y = np.zeros((40, 8, 8, 3), np.uint8), np.arange(40) % 4
    return dict(x_train=x, y_train=y, x_test=x, y_test=y) | changes


REFUSED = {
    "unknown dataset": (dict(dataset="cars"), "digits, cifar10, cifar100, svhn, stl10, fashion_mnist"),
    "missing file": (dict(dataset="cells.npz"), "cells.npz"),
    "truncated file": (dict(dataset="half"), "half.npz cannot be read"),
    "labels do not divide": (dict(dataset="digits", n_labels=41), "n_labels=41 does not divide by 10"),
    "more labels than images": (dict(dataset="digits", n_labels=2000), "n_labels=2000"),
    "more labels than a class has": (dict(dataset="digits", n_labels=1290), "n_labels=1290"),
    "a class without images": (dict(dataset="gap"), "class 1"),
    "grey images in a colour dataset": (dict(dataset="cifar10"), "grey 8×8"),
    "misspelt override": (dict(dataset="digits", bandwith=3), "'bandwidth'"),
    "wrong override": (dict(dataset="digits", alpha=2), "alpha=2"),
    "no such device": (dict(dataset="digits", device="cuda:77"), "device='cuda:77'"),
    "padding": (dict(dataset="digits", weak_pad=9), "weak_pad=9"),
    "folder of another run": (dict(dataset="digits", output="taken", seed=1), "already holds another run"),
    "folder of this run": (dict(dataset="digits", output="taken"), "resume=True"),
    "nothing to resume": (dict(dataset="digits", resume="nowhere"), "resume='nowhere' does not exist"),
    "no split": (dict(dataset="digits", split="nowhere.json"), "nowhere.json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_sentence_and_nothing_is_written(home, case):
    (home / "data").mkdir()
    (home / "taken").mkdir()
    preset("digits").save(home / "taken" / "config.json")
    np.savez(home / "data" / "gap.npz", **arrays(y_train=np.arange(40) % 2 * 3))
    np.savez(home / "data" / "cifar10.npz", **arrays(x_train=np.zeros((40, 8, 8), np.uint8), x_test=np.zeros((40, 8, 8), np.uint8)))
    np.savez(home / "data" / "whole.npz", **arrays())
    (home / "data" / "half.npz").write_bytes((home / "data" / "whole.npz").read_bytes()[:500])
    before = sorted(home.rglob("*"))
    params, words = REFUSED[case]
    with pytest.raises(ValueError) as refused:
        config, output, resume = run_params(params)
        train(config, output=output, resume=resume)
    assert words in str(refused.value) and "\n" not in str(refused.value), str(refused.value)
    assert sorted(home.rglob("*")) == before


def test_own_data_and_a_torchvision_encoder():
    from torchvision.models import resnet18

    encoder = resnet18()
    encoder.fc = torch.nn.Identity()
    data = noise(60, (3, 32, 32), 4)
    config = preset("my_images").replace(steps=2, labeled_batch=4, unlabeled_batch=8, mix_after=1, evaluate_every=2, n_labels=8)
    result = Trainer(config, encoder=encoder, data=data, output="own").fit()
    assert 0 <= result["test_accuracy"] <= 1 and result["config"]["k"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("dataset, n_labels", PAPER_SETTINGS)
def test_presets_of_the_paper_take_two_iterations(dataset, n_labels):
    """The real encoder; the full batch for WRN-28-2, an eighth of it for the larger ones."""
    config = preset(dataset, n_labels).replace(steps=2, mix_after=1, evaluate_every=2)
    if config.encoder != "wrn_28_2":
        config = config.replace(labeled_batch=8, unlabeled_batch=56)
    shape = (3, 96, 96) if dataset == "stl10" else (3, 32, 32)
    data = noise(5000, shape, 100 if dataset == "cifar100" else 10)
    trainer = Trainer(config, data=data, output="run")
    result = trainer.fit()
    assert 0 <= result["test_accuracy"] <= 1 and result["n_labels"] == n_labels
    assert trainer.history.mixed.tolist() == [0.5]
    assert all(torch.isfinite(value).all() for value in weights(trainer))
