"""DensityLabelSpreading in scikit-learn's own checks, and what a user's input may do to it."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pmlp import estimator
from pmlp.estimator import DensityLabelSpreading
from pmlp.neighbors import knn
from pmlp.spreading import spread


def expected_failures(estimator):
    "-1 marks a row without label, so it cannot be a class; scikit-learn's check exempts its own estimators by their names."
    return {"check_classifiers_classes": "the check's classes include -1"} if estimator.unlabeled == -1 else {}


@parametrize_with_checks(
    [DensityLabelSpreading(), DensityLabelSpreading(unlabeled="?"), DensityLabelSpreading.paper(unlabeled="?"),
     DensityLabelSpreading(unlabeled="?", density="absolute", path_points=3, confident=0)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    points, classes = make_blobs(400, centers=3, n_features=5, random_state=0)
    labels = np.full(400, -1)
    for name in range(3):
        labels[np.flatnonzero(classes == name)[:3]] = name
    return points.astype(np.float32), classes, labels


def test_kinds_of_input_agree(blobs):
    points, _, labels = blobs
    expected = DensityLabelSpreading().fit(points, labels)
    names = [f"feature {column}" for column in range(5)]
    frame = DensityLabelSpreading().fit(pd.DataFrame(points, columns=names), pd.Series(labels))
    tensor = DensityLabelSpreading().fit(torch.tensor(points), torch.tensor(labels))
    for other in (frame, tensor):
        assert np.array_equal(other.label_distributions_, expected.label_distributions_)
    assert list(frame.feature_names_in_) == names


@pytest.mark.parametrize("marker", ["", "?", None, math.nan])
def test_labels_of_any_kind(blobs, marker):
    points, _, labels = blobs
    names = np.array(["ant", "bee", "cat", marker], dtype=object)[labels]
    model = DensityLabelSpreading(unlabeled=marker).fit(points, names)
    plain = DensityLabelSpreading().fit(points, labels)
    assert list(model.classes_) == ["ant", "bee", "cat"]
    assert np.array_equal(model.transduction_, np.array(["ant", "bee", "cat"])[plain.transduction_])


def test_precomputed_neighbours_clone_pickle_relabel(blobs):
    points, classes, labels = blobs
    model = DensityLabelSpreading().fit(points, labels)
    given = clone(model).fit(points, labels, neighbors=knn(torch.tensor(points), 15))
    assert np.array_equal(given.label_distributions_, model.label_distributions_)
    model.predict(points[:3])
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(points[:20]), model.predict_proba(points[:20]))
    other = np.full(400, -1)
    other[:60] = classes[:60]
    fresh = DensityLabelSpreading().fit(points, other)
    assert np.array_equal(model.relabel(other).label_distributions_, fresh.label_distributions_)


def test_the_order_in_memory_changes_nothing(monkeypatch):
    points, digits = (part[:500] for part in load_digits(return_X_y=True))
    points = points + np.random.default_rng(0).normal(0, 0.1, points.shape)  # no ties, which the order would break
    labels = np.where(np.arange(500) < 40, digits, -1)
    order = estimator.cache_friendly_order
    for head, tolerance in ((None, 1e-5), ("linear", 1e-2)):  # sums in another order, which each of a head's many steps carries on
        monkeypatch.setattr(estimator, "cache_friendly_order", order)
        plain = DensityLabelSpreading(head=head).fit(points, labels)
        monkeypatch.setattr(estimator, "cache_friendly_order", lambda points: torch.arange(len(points)).flip(0))
        other = DensityLabelSpreading(head=head).fit(points, labels)
        assert np.allclose(other.label_distributions_, plain.label_distributions_, atol=tolerance)
        assert np.allclose(other.predict_proba(points[:9] + 0.1), plain.predict_proba(points[:9] + 0.1), atol=tolerance)
        assert np.array_equal(other.transduction_, plain.transduction_)
        if head is None:
            assert list(other.next_to_label(5)) == list(plain.next_to_label(5))


def test_pipeline_and_grid_search(blobs):
    points, classes, labels = blobs
    pipeline = make_pipeline(StandardScaler(), DensityLabelSpreading())
    assert (pipeline.fit(points, labels).predict(points) == classes).mean() > 0.99
    search = GridSearchCV(DensityLabelSpreading(), dict(n_neighbors=[5, 15], alpha=[0.9, 0.99]), cv=3)
    assert search.fit(points, classes).best_score_ > 0.99


def test_prediction_of_training_points_is_close_to_their_transduction(blobs):
    points, _, labels = blobs
    model = DensityLabelSpreading().fit(points, labels)
    assert (model.predict(points) == model.transduction_).mean() > 0.99


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(y=np.full(400, -1)), "no label"),
        (dict(y=np.zeros(399, dtype=int)), "399 labels"),
        (dict(X=np.full((400, 5), np.nan)), "NaN"),
        (dict(X=np.zeros((1, 5)), y=[0]), "minimum of 2"),
        (dict(density="mean"), "density"),
        (dict(bandwidth=-1), "bandwidth"),
        (dict(temperature=0), "temperature"),
        (dict(alpha=1.0), "alpha"),
        (dict(second_alpha=0), "second_alpha"),
        (dict(head="deep"), "head"),
        (dict(rounds=0), "rounds"),
        (dict(rounds=2.5), "rounds"),
        (dict(rounds=None), "rounds"),
        (dict(second_alpha="far"), "second_alpha"),
        (dict(balance=[1, -2, 3]), "balance"),
        (dict(balance=[1, 2], head=None), "balance"),
        (dict(confident=2), "confident"),
        (dict(similarity="l1"), "similarity"),
        (dict(reduce="sum"), "reduce"),
        (dict(support=0), "support"),
        (dict(n_neighbors=0), "k must"),
        (dict(balance="equal"), "balance"),
        (dict(balance=[1, 2]), "balance"),
        (dict(index="Flut"), "Flut"),
    ],
)
def test_bad_input_is_named(blobs, change, message):
    points, _, labels = blobs
    X, y = change.pop("X", points), change.pop("y", labels)
    model = DensityLabelSpreading(**change)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "label_distributions_")


def test_unusual_but_sensible_input(blobs):
    points, classes, _ = blobs
    one_class = np.where(classes == 0, 0, -1)
    assert (DensityLabelSpreading().fit(points, one_class).transduction_ == 0).all()
    assert np.array_equal(DensityLabelSpreading().fit(points, classes).transduction_, classes)  # all labelled
    once = np.full(400, -1)
    once[[np.flatnonzero(classes == name)[0] for name in range(3)]] = range(3)  # each class once
    assert (DensityLabelSpreading().fit(points, once).transduction_ == classes).mean() > 0.9
    with pytest.warns(UserWarning, match="all classes are equal in 28 of 30 rows"):
        constant = DensityLabelSpreading().fit(np.ones((30, 2)), [0, 1] + [-1] * 28)
    assert np.isfinite(constant.label_distributions_).all()
    with pytest.warns(UserWarning, match="capped"):
        few = DensityLabelSpreading().fit(points[:5], [0, 1, -1, -1, -1])
    assert np.allclose(few.label_distributions_.sum(1), 1)


@pytest.mark.parametrize("confident", [0, 0.8])
def test_a_group_that_no_label_reaches_stays_undecided(confident):
    random = np.random.default_rng(0)
    points = np.repeat([0.0, 50.0, 100.0], 40)[:, None] + random.normal(size=(120, 2))
    labels = np.full(120, -1)
    labels[[0, 40]] = 0, 1
    with pytest.warns(UserWarning, match="all classes are equal in 40 of 120 rows") as caught:
        model = DensityLabelSpreading(confident=confident, head=None).fit(points, labels)
    assert caught[0].filename == __file__
    assert (model.label_distributions_[80:] == 0.5).all() and (model.transduction_[:80] == np.repeat([0, 1], 40)).all()
    labels[80] = 2
    with warnings.catch_warnings(action="error"):
        assert (model.relabel(labels).transduction_ == np.repeat([0, 1, 2], 40)).all()


def test_a_group_that_no_label_reaches_is_named():
    points = np.repeat([0.0, 50.0, 100.0], 40)[:, None] + np.random.default_rng(0).normal(size=(120, 2))
    labels = np.full(120, -1)
    labels[[0, 40]] = 0, 1
    with pytest.warns(UserWarning, match="no label reaches 40 of 120 rows") as caught:
        model = DensityLabelSpreading().fit(points, labels)
    assert caught[0].filename == __file__
    assert (model.transduction_[:80] == np.repeat([0, 1], 40)).all() and model.taught_.unreached == 40


@pytest.mark.parametrize("index", ["Flat", "IVF16,Flat;nprobe=4"])
@pytest.mark.parametrize("others", [0, 500])
def test_many_duplicates(index, others):
    """Their lists end in ties and are left empty, so densities must be found without them."""
    random = np.random.default_rng(0)
    points = np.concatenate([np.zeros((3000, 4)), random.normal(5, 1, (others, 4))])
    labels = np.full(len(points), -1)
    labels[:4] = 0
    labels[-9:] = 1
    model = DensityLabelSpreading(index=index).fit(points, labels)
    assert np.allclose(model.graph_.own_logs[:3000], 0, atol=1e-6)  # all of the nearest lie on the spot itself
    assert np.isfinite(model.label_distributions_).all()
    if others:
        assert np.array_equal(model.transduction_, np.arange(len(points)) >= 3000)
        assert np.isfinite(model.predict_proba(points[2995:3005])).all()


def test_infinite_bandwidth_is_plain_spreading(blobs):
    points, _, labels = blobs
    plain = DensityLabelSpreading(density=None).fit(points, labels)
    limit = DensityLabelSpreading(bandwidth=math.inf).fit(points, labels)
    assert np.array_equal(plain.label_distributions_, limit.label_distributions_)
    assert np.array_equal(plain.predict_proba(points[:9] + 0.1), limit.predict_proba(points[:9] + 0.1))


def test_informed_labels_beat_random_ones_on_digits():
    points, digits = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    gains = []
    for _ in range(5):
        labels = np.full(len(digits), -1)
        start = [random.choice(np.flatnonzero(digits == digit)) for digit in range(10)]
        labels[start] = digits[start]
        model = DensityLabelSpreading(head=None, balance=np.ones(10)).fit(points, labels)
        accuracy = []
        for chosen in (model.next_to_label(20), random.choice(np.flatnonzero(labels < 0), 20, replace=False)):
            more = labels.copy()
            more[chosen] = digits[chosen]
            accuracy.append((clone(model).fit(points, more).transduction_ == digits).mean())
        gains.append(accuracy[0] - accuracy[1])
    assert np.mean(gains) > 2 * np.std(gains) / math.sqrt(len(gains))


@pytest.fixture(scope="module")
def few_digits():
    points, digits = load_digits(return_X_y=True)
    random = np.random.default_rng(3)
    labels = np.full(len(digits), -1)
    for digit in range(10):
        chosen = random.choice(np.flatnonzero(digits == digit), 6, replace=False)
        labels[chosen] = digit
    return points, digits, labels


def test_the_former_default_is_spelt_out_to_the_bit(few_digits):
    points, _, labels = few_digits
    model = DensityLabelSpreading(head=None, balance="labels").fit(points, labels)
    sources = torch.zeros(len(labels), 10)
    sources[labels >= 0, labels[labels >= 0]] = 1
    expected = spread(model.graph_.weights, sources, alpha=0.99, confident=0.8, second_alpha=0.9, balance="labels")
    expected[labels >= 0] = sources[labels >= 0]
    assert np.array_equal(model.label_distributions_, expected.numpy())


def test_scale_shift_and_order_change_no_label(few_digits):
    points, _, labels = few_digits
    points = points + np.random.default_rng(0).normal(0, 0.1, points.shape)  # no ties
    plain = DensityLabelSpreading().fit(points, labels)
    order = np.random.default_rng(1).permutation(len(labels))
    for other, wanted in ((1000 * points, plain.transduction_), (points + 50, plain.transduction_)):
        assert (DensityLabelSpreading().fit(other, labels).transduction_ == wanted).mean() > 0.999
    assert (DensityLabelSpreading().fit(points[order], labels[order]).transduction_ == plain.transduction_[order]).mean() > 0.999


def test_estimate_holds_the_truth_and_the_choice_is_told(few_digits):
    points, digits, labels = few_digits
    model = DensityLabelSpreading().fit(points, labels)
    estimate = model.estimate()
    accuracy = (model.transduction_ == digits)[labels < 0].mean()
    assert estimate.low < accuracy < 1 and estimate.low < estimate.accuracy < estimate.high
    assert estimate.calibration.labels.sum() == 60
    assert 0 <= model.taught_.choice.pull <= 1 and model.taught_.masses.sum() == pytest.approx(1, abs=1e-5)
    one_each = np.where(np.isin(np.arange(len(labels)), [np.flatnonzero(labels == digit)[0] for digit in range(10)]), labels, -1)
    with pytest.raises(ValueError, match="at least two labels"):
        model.relabel(one_each).estimate()
    with pytest.raises(ValueError, match="head='linear'"):
        DensityLabelSpreading(head=None).fit(points, labels).estimate()


def test_unequal_classes_drawn_per_class_are_not_forced_equal(few_digits):
    points, digits, _ = few_digits
    random = np.random.default_rng(0)
    sizes = np.linspace(178, 20, 10).astype(int)
    kept = np.concatenate([random.choice(np.flatnonzero(digits == digit), min(size, (digits == digit).sum()), replace=False)
                           for digit, size in enumerate(sizes)])
    points, digits = points[kept], digits[kept]
    labels = np.full(len(kept), -1)
    for digit in range(10):
        labels[random.choice(np.flatnonzero(digits == digit), 6, replace=False)] = digit
    accuracy = {balance: (DensityLabelSpreading(balance=balance).fit(points, labels).transduction_ == digits)[labels < 0].mean()
                for balance in ("estimated", "labels")}
    assert accuracy["estimated"] > accuracy["labels"] + 0.02
