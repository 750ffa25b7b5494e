"""Runs from the outside: every method, every preset, two runs of one seed, and input that is refused before anything is written."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path

import numpy as np
import papermill
import pytest
import torch
from helpers import message
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pmlp.basics import code_version
from pmlp.config import METHODS, PAPER_SETTINGS, Config, preset
from pmlp.data import Images, save_split
from pmlp.pseudo_labels import PseudoLabels
from pmlp.records import load_checkpoint, read_history
from pmlp.step import Losses, Step
from pmlp.training import StepMeans, Trainer, main, predict, run_data, run_params, seconds_left, train

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
    measured = [name for name in plain.history if "seconds" not in name and "density" not in name]
    assert plain.history[measured].equals(infinite.history[measured]) and (infinite.history.density_between == 1).all()
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
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 5
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


@pytest.mark.parametrize("params", [dict(output=3), dict(output=" "), dict(resume=3), dict(steps=0), dict(bandwith=3)])
def test_bad_parameters_are_named(params):
    (name,) = params
    assert name in message(run_params, params)


@pytest.mark.parametrize("options", [dict(resume=True), dict(resume="nowhere"), dict(processes=0), dict(processes=2, data=object())])
def test_bad_options_of_train_are_named(options):
    name = next(iter(options))
    assert name in message(train, preset("digits"), **options)


CANNOT_RUN = {"{": "Expecting", "[1]": "one JSON object", '{"bandwith": 3}': "did you mean 'bandwidth'", '{"dataset": "digits", "n_labels": 41}': "n_labels=41"}


@pytest.mark.parametrize("text", CANNOT_RUN)
def test_a_file_that_cannot_be_run_is_one_sentence(home, capsys, text):
    (home / "run.json").write_text(text)
    with pytest.raises(SystemExit):
        main([str(home / "run.json"), "--output", str(home / "none")])
    said = capsys.readouterr().err
    assert CANNOT_RUN[text] in said and said.count("\n") == 1 and not (home / "none").exists()


def test_a_stored_split_is_used_whatever_the_seed(home):
    config, data, split = run_data(preset("digits"))
    save_split(home / "split.json", split, data.train_labels)
    stored = preset("digits").replace(split="split.json", seed=5)
    assert torch.equal(run_data(stored)[2], split)
    assert "has 40 labels, but n_labels=50" in message(run_data, stored.replace(n_labels=50))


def test_predictions_do_not_depend_on_blocks_and_leave_the_mode():
    trainer = Trainer(run_params(SHORT)[0])
    for network, training in ((trainer.learner.network, True), (trainer.learner.average, False)):
        one, other = (predict(network, trainer.data.test, trainer.views, batch) for batch in (7, 512))
        torch.testing.assert_close(one.probabilities, other.probabilities, rtol=0, atol=1e-5)
        assert network.training == training


def test_step_means():
    means = StepMeans("cpu")
    assert all(value in (0, None) for value in means.take().values())
    labels = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [1.0, 0.0]])
    before = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [1.0, 0.0]])
    pseudo = PseudoLabels(labels, torch.tensor([True, False, True, True]), before, labels)
    means.add(Step(Losses(*torch.tensor([1.0, 2.0, 3.0])), pseudo, torch.tensor([0, 1, 1, -1]), None))
    means.add(Step(Losses(*torch.tensor([3.0, 2.0, 1.0])), None, torch.tensor([]), None))  # only labelled images
    expected = dict(loss_supervised=2, loss_unsupervised=2, loss_contrastive=2, confident=0.75, correct=0.5, mixed=1, moved=0.05)
    assert means.take() == pytest.approx(expected)
    assert [means.take()[name] for name in ("confident", "correct", "mixed", "moved")] == [None] * 4


@pytest.mark.parametrize("changes, left", [(dict(), 100), (dict(supervised_warmup=50, labeled_batch=10, unlabeled_batch=30), 400)])
def test_seconds_left_knows_that_steps_of_a_warm_up_are_shorter(changes, left):
    config = preset("digits").replace(steps=110, **changes)
    assert seconds_left(config, Counter(forward=5.0, backward=5.0), 10, 10, 0) == pytest.approx(left)


def stop_after(trainer, iteration, error=InterruptedError):
    """Let a trainer fail after an iteration."""
    step = trainer.learner.step

    def failing():
        if trainer.learner.iteration == iteration:
            raise error
        return step()

    trainer.learner.step = failing


def test_a_run_of_days_says_so_after_ten_steps():
    trainer = Trainer(run_params(SHORT | dict(steps=10**8))[0], output="slow")
    stop_after(trainer, 12)
    with pytest.warns(UserWarning, match="this run takes about .* days: .* steps="), pytest.raises(InterruptedError):
        trainer.fit()


def test_the_result_is_that_of_the_last_evaluation(home):
    trainer = Trainer(run_params(SHORT | dict(steps=36, threshold=0.6, mix_after=6))[0], output="run")
    result = trainer.fit()
    assert result == json.loads((home / "run" / "result.json").read_text()) and Config(**result["config"]) == trainer.config
    assert {"dataset", "n_labels", "method", "seed", "steps", "seconds", "config"} <= set(result) and result["version"] == code_version()
    assert trainer.evaluate() == {name: result[name] for name in ("test_accuracy", "test_accuracy_student")}
    assert result["best_test_accuracy"] == trainer.history.test_accuracy.max()
    assert trainer.history.mixed.tolist() == [0.5, 1, 1] and (trainer.history.moved > 0).all() and (trainer.history.density_within == 1).all()
    stored = {path.name: load_checkpoint(path)["learner"]["iteration"] for path in trainer.folder.glob("*.pt")}
    assert stored == {"checkpoint.pt": 36, "previous.pt": 24, "best.pt": result["best_iteration"]}


def test_a_state_continues_in_another_run_of_the_same_settings():
    config = run_params(SHORT)[0]
    one, other = Trainer(config), Trainer(config)
    for _ in range(6):
        one.means.add(one.learner.step())
    one.metrics()
    state = deepcopy(one.state_dict())  # as a file would be
    other.load_state_dict(state)
    for trainer in (one, other):
        trainer.means.add(trainer.learner.step())
    assert same(one, other) and torch.equal(one.means.sums, other.means.sums) and one.best == other.best and other.learner.iteration == 7
    assert "another run" in message(Trainer(config.replace(bandwidth=2.0)).load_state_dict, state)
    one.learner.network.classifier.bias.data[0] = math.nan
    with pytest.raises(FloatingPointError, match="the weights after iteration 7 are not finite"):
        one.state_dict()


def test_a_loss_that_is_not_finite_names_the_last_checkpoint(home):
    trainer = Trainer(run_params(SHORT)[0], output="broken")
    step = trainer.learner.step

    def overflowing():
        if trainer.learner.iteration == 15:
            trainer.learner.network.classifier.weight.data.mul_(1e38)
        return step()

    trainer.learner.step = overflowing
    with pytest.raises(FloatingPointError, match="iteration 16 is not finite .* The last good checkpoint is .*checkpoint.pt"):
        trainer.fit()
    assert load_checkpoint(home / "broken" / "checkpoint.pt")["learner"]["iteration"] == 12


def test_a_write_that_fails_leaves_the_checkpoints(home):
    trainer = Trainer(run_params(SHORT | dict(checkpoint_every=10))[0], output="failing")
    (home / "failing").mkdir()
    (home / "failing" / "tensorboard").touch()  # in the way of the records
    with pytest.raises(OSError, match="The last good checkpoint is"):
        trainer.fit()
    assert load_checkpoint(trainer.checkpoints.newest)["learner"]["iteration"] == 10
    (home / "file").touch()
    assert "cannot be written" in message(Trainer(trainer.config, output="file/run").fit)


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
