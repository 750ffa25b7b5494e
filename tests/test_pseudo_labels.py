"""Pseudo-labels: the parts refuse what is wrong and follow their rules; the labeller continues to the bit and heeds every field."""

import math

import pytest
import torch
from helpers import message
from torch.nn.functional import normalize, one_hot

from pmlp.config import preset
from pmlp.propagation import label_propagation
from pmlp.pseudo_labels import (
    Buffer,
    DistributionAlignment,
    PseudoLabeller,
    Threshold,
    buffered_propagation,
    graph_density_ratio,
    mix,
    neighbor_count,
    rampdown_weight,
    split_by_confidence,
)

CENTRES = torch.randn(10, 32, generator=torch.Generator().manual_seed(0))
PREDICTIONS = torch.tensor([[0.97, 0.03], [0.6, 0.4], [0.05, 0.95]])


def images(count, generator, right=0.75):
    """Unit features of ten classes, their classes, and logits of a network that is right for a share of them."""
    classes = torch.randint(10, (count,), generator=generator)
    features = normalize(CENTRES[classes] + 0.7 * torch.randn(count, 32, generator=generator))
    guess = torch.where(torch.rand(count, generator=generator) < right, classes, torch.randint(10, (count,), generator=generator))
    return features, classes, 6 * torch.rand(count, 1, generator=generator) * one_hot(guess, 10)


# The parts


@pytest.mark.parametrize(
    "function, arguments, named",
    [
        (split_by_confidence, (PREDICTIONS, 1.5), "threshold"),
        (mix, (PREDICTIONS, PREDICTIONS[:1]), "propagated"),
        (mix, (PREDICTIONS, PREDICTIONS, 2), "eta"),
        (DistributionAlignment, (2, 1.0), "momentum"),
        (Buffer().update, (PREDICTIONS, PREDICTIONS[:2]), "predictions"),
    ],
)
def test_bad_input_is_named(function, arguments, named):
    assert named in message(function, *arguments)


def test_alignment_keeps_balanced_predictions_resets_and_continues():
    balanced, table = DistributionAlignment(2), torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    torch.testing.assert_close(balanced(table), table)
    moved = DistributionAlignment(2, momentum=0.5)
    first = moved(torch.tensor([[0.9, 0.1], [0.7, 0.3]]))[0]
    torch.testing.assert_close(moved.mean, torch.tensor([0.65, 0.35]))
    torch.testing.assert_close(first, torch.tensor([0.9 / 0.65, 0.1 / 0.35]) / (0.9 / 0.65 + 0.1 / 0.35))
    copy = DistributionAlignment(2)
    copy.load_state_dict(moved.state_dict())
    assert copy.mean.tolist() == moved.mean.tolist()
    moved.reset()
    assert moved.mean.tolist() == [0.5, 0.5]


def test_the_buffer_keeps_the_newest_rows_clears_and_continues():
    newest = Buffer(rows=3)
    for value in (1.0, 2.0):
        newest.update(torch.full((2, 1), value), torch.tensor([[value, 0.0], [0.0, value]]))
    assert newest.features.flatten().tolist() == [2, 2, 1]
    assert newest.predictions.tolist() == [[2, 0], [0, 2], [1, 0]]
    copy = Buffer()
    copy.load_state_dict(newest.state_dict())
    assert torch.equal(copy.features, newest.features) and torch.equal(copy.predictions, newest.predictions)
    newest.clear()
    assert len(newest) == 0


@pytest.mark.parametrize("rows", [0, 1])
def test_a_small_buffer(rows):
    small = Buffer(rows)
    small.update(PREDICTIONS, PREDICTIONS)
    assert len(small) == rows


@pytest.fixture
def batch():
    """Labelled images, their one-hot labels, unlabelled images, and a buffer half of whose rows are confident."""
    generator = torch.Generator().manual_seed(0)
    labeled, classes, _ = images(64, generator)
    unlabeled, _, _ = images(200, generator)
    past, guesses, _ = images(264, generator)
    confidence, buffer = torch.rand(264, 1, generator=generator), Buffer()
    buffer.update(past, confidence * one_hot(guesses, 10) + (1 - confidence) / 10)
    return labeled, one_hot(classes, 10).float(), unlabeled, buffer


def test_labels_may_be_whole_numbers(batch):
    labeled, labels, unlabeled, buffer = batch
    one, other = (
        buffered_propagation(labeled, table, unlabeled, buffer, generator=torch.Generator().manual_seed(1)) for table in (labels, labels.long())
    )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_an_empty_buffer_is_propagation_in_the_batch(batch):
    labeled, labels, unlabeled, _ = batch
    alone = buffered_propagation(labeled, labels, unlabeled, Buffer())
    expected = label_propagation(torch.cat([labeled, unlabeled]), torch.cat([labels, torch.zeros(200, 10)]))[64:]
    torch.testing.assert_close(alone, expected, rtol=0, atol=1e-6)


def test_samples_of_the_whole_buffer_are_all_the_same(batch):
    one, two = (buffered_propagation(*batch, bootstraps=bootstraps, fraction=1.0, support=45) for bootstraps in (1, 2))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


@pytest.mark.parametrize("settings", [dict(bootstraps=0), dict(fraction=0.0)])
def test_bad_samples_are_named(batch, settings):
    assert next(iter(settings)) in message(buffered_propagation, *batch, **settings)


def test_the_ramp_down_of_the_authors():
    authors = preset("cifar10", method="authors")
    weights = [rampdown_weight(authors, 1024 * epoch) for epoch in range(1024)]
    assert weights[:31] == [1.0] * 31
    assert weights[40] == pytest.approx(math.exp(-100 / 994), abs=1e-12)
    assert max(epoch for epoch in range(1024) if weights[epoch] > 0.3) == 64
    assert max(epoch for epoch in range(1024) if weights[epoch] > 0.1) == 77


def test_no_ramp_down_of_its_own_and_none_in_short_runs():
    assert {rampdown_weight(preset("cifar10"), 1024 * epoch) for epoch in (0, 31, 1023)} == {1.0}
    assert rampdown_weight(preset("digits", method="authors"), 599) == 1.0  # 15 epochs end before it begins


@pytest.mark.parametrize(
    "config, points, expected",
    [(preset("cifar10", method="authors"), points, count) for points, count in ((921, 14), (15, 11), (10, 7), (2, 1))]
    + [(preset("cifar100"), 921, 150), (preset("cifar100"), 100, 99)],
)
def test_neighbours_of_small_graphs(config, points, expected):
    assert neighbor_count(config, points) == expected


QUICK = preset("cifar100").replace(threshold=0.98, threshold_patience=2, threshold_step_early=0.006)


def test_only_shares_above_the_ratio_count():
    rule = Threshold(QUICK)
    for ratio in (0.5, 0.05, 0.01, 0.5):  # 0.05 does not exceed 0.05
        rule.update(ratio, epoch=0)
    assert (rule.value, rule.count) == (0.986, 0)


@pytest.mark.parametrize("epoch, step", [(199, 0.006), (200, 0.005), (399, 0.005), (400, 0.003)])
def test_steps_shrink_with_the_epochs_and_the_count_is_stored(epoch, step):
    rule, copy = Threshold(QUICK.replace(threshold=0.5)), Threshold(QUICK)
    rule.update(1.0, epoch)
    assert (rule.value, rule.count) == (0.5, 1)
    copy.load_state_dict(rule.state_dict())
    copy.update(1.0, epoch)
    assert copy.value == pytest.approx(0.5 + step, abs=1e-12)


def test_a_fixed_threshold_stays():
    still = Threshold(QUICK.replace(adaptive_threshold=False))
    for _ in range(9):
        still.update(1.0, 0)
    assert (still.value, still.count) == (0.98, 0)


# The labeller

BASE = preset("digits").replace(mix_after=2, epoch_steps=4)
LASSL = BASE.replace(method="lassl", density=None)
NARROW = BASE.replace(bandwidth=0.2)  # the density matters


def play(config, iterations=6, start=0, labeller=None):
    """Pseudo-labels of some iterations whose batches depend on the iteration alone."""
    labeller, results = labeller or PseudoLabeller(config, 10), []
    for iteration in range(start, start + iterations):
        generator = torch.Generator().manual_seed(3000 + iteration)
        labeled, classes, _ = images(32, generator)
        unlabeled, _, logits = images(100, generator)
        results.append(labeller(iteration, one_hot(classes, 10).float(), labeled, unlabeled, logits, torch.Generator().manual_seed(iteration)))
    return labeller, results


def same(one, other):
    return all(torch.equal(first.labels, second.labels) and torch.equal(first.mask, second.mask) for first, second in zip(one, other, strict=True))


def mixed(config):
    return [result.propagated is not None for result in play(config)[1]]


def test_two_runs_are_one_and_a_stored_one_continues():
    whole = play(BASE)[1]
    assert same(play(BASE)[1], whole)
    half, first = play(BASE, 3)
    copy = PseudoLabeller(BASE, 10)
    copy.load_state_dict(half.state_dict())
    assert same(first + play(BASE, 3, start=3, labeller=copy)[1], whole)


def test_without_density_is_an_infinite_bandwidth():
    without = play(LASSL)[1]
    assert same(without, play(BASE.replace(bandwidth=math.inf))[1])
    assert not same(without, play(NARROW)[1])


@pytest.mark.parametrize(
    "change",
    [
        dict(k=3), dict(count_self=True), dict(neighbor_cap=0.01), dict(similarity="cosine"), dict(temperature=0.5), dict(density="relative"),
        dict(edges="low_to_high"), dict(path_points=3), dict(support=20), dict(exclude_ends=True), dict(bandwidth=1.0),
        dict(path_points=3, reduce="min"), dict(alpha=0.5), dict(entry_regularizer=1e-2), dict(balance="labels"), dict(buffer_rows=0),
        dict(buffer_rows=300), dict(buffer_threshold=0.5), dict(buffer_bootstraps=2, buffer_fraction=0.5), dict(buffer_reset=True),
        dict(alignment=False), dict(alignment_momentum=0.5), dict(alignment_reset=True), dict(eta=0.4), dict(mix_after=3), dict(threshold=0.5),
    ],
    ids=lambda change: ",".join(f"{name}={value}" for name, value in change.items()),
)
def test_every_field_arrives_where_it_acts(change):
    start = NARROW.replace(path_points=3) if "reduce" in change else NARROW
    assert not same(play(start)[1], play(start.replace(**change))[1])


@pytest.mark.parametrize("restart, expected", [(False, 0.52), (True, 0.51)])  # restarted, iterations 1 to 3 count, then 4 and 5
def test_the_threshold_rises(restart, expected):
    config = BASE.replace(adaptive_threshold=True, threshold=0.5, threshold_ratio=0.1, threshold_patience=3, threshold_restart=restart)
    assert play(config)[0].threshold.value == pytest.approx(expected, abs=1e-9)


def test_mixing_starts_after_some_iterations_and_ends_with_the_ramp_down():
    assert mixed(BASE) == [False, False, True, True, True, True]
    ramp = BASE.replace(rampdown=True, rampdown_epoch=0, steps=6)  # in epoch 1 of 1.5 the weight is exp(-1/1.5), about 0.51
    assert mixed(ramp) == [False, False, True, True, True, True]
    assert mixed(ramp.replace(rampdown_propagation=0.6)) == [False, False, True, True, False, False]
    assert not any(mixed(preset("digits", method="fixmatch")))


def test_the_density_ratio_of_a_graph():
    features = images(400, torch.Generator().manual_seed(0))[0]
    assert graph_density_ratio(features, LASSL) is None
    assert graph_density_ratio(features, BASE.replace(bandwidth=math.inf)) == (1.0, 1.0, 1.0)
    assert graph_density_ratio(features, BASE.replace(bandwidth=0.2, path_points=3)).within > 1.05
