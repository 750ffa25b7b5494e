"""The linear head, the rounds in which it and the graph teach each other, and the labels that are left out."""

import math

import pytest
import torch

from pmlp.kernels import Line
from pmlp.propagation import normalized_weights, solve
from pmlp.spreading import class_shares, left_out_answers, mass_pull, mixes, scaled, smooth, spread_with_head, table_graph, thirds, train_head


@pytest.fixture(scope="module")
def blobs():
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(600) % 4
    points = torch.randn(600, 20, generator=generator) + 0.8 * torch.randn(4, 20, generator=generator)[classes]
    return points, classes, table_graph(points, 10, Line(support=20, bandwidth="auto", kind="relative"))


def test_shares_follow_counts_that_scatter_beyond_chance():
    equal, scattered = class_shares(torch.tensor([5.0, 5, 5]))
    assert scattered == 0 and torch.allclose(equal, torch.full((3,), 1 / 3))
    few, many = (class_shares(torch.tensor([1.0, 2, 6]) * factor)[0] for factor in (1, 100))
    observed = torch.tensor([1.0, 2, 6]) / 9
    assert (few - observed).abs().sum() > 3 * (many - observed).abs().sum()
    assert few.sum().item() == pytest.approx(1, abs=1e-6) and (few.diff() >= 0).all()


def test_pull_needs_evidence_and_stays_between_zero_and_one():
    for per_class in (1, 4, 25, 1000):
        for scattered in (0.0, 0.5, 1.0):
            pulls = [mass_pull(per_class, scattered, spread, 10) for spread in torch.linspace(0, 2, 21).tolist()]
            assert pulls[0] == 0 and pulls == sorted(pulls) and pulls[-1] < 1
    assert mass_pull(25, 0.0, 1.0, 10) > mass_pull(25, 1.0, 1.0, 10)  # shares of a random draw are worth something


def test_smooth_solves_to_three_digits(blobs):
    _, classes, graph = blobs
    matrix = normalized_weights(graph.weights)
    sources = torch.eye(4)[classes] * torch.rand(600, 1, generator=torch.Generator().manual_seed(1))
    exact = solve(matrix, sources.double(), 0.8).float()
    residual = 1e-3 * sources.square().sum(0).sqrt().max().item() / (1 - 0.8)  # the error is at most the residual over the least eigenvalue
    assert (smooth(matrix.float(), sources, 0.8) - exact).abs().max() <= residual


def test_scaled_rows_and_empty_rows():
    result = scaled(torch.tensor([[1.0, 1], [3, 1], [0, 0]]), torch.tensor([0.25, 0.75]))
    assert torch.allclose(result.sum(1), torch.ones(3)) and torch.equal(result[2], torch.full((2,), 0.5))


def test_thirds_hold_every_class_whatever_the_order():
    points = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    codes = torch.tensor([0] * 30 + [1] * 12 + [2] * 7 + [3])
    parts = thirds(points, codes)
    assert parts[-1] == -1  # the only label of its class is never left out
    for name, size in ((0, 30), (1, 12), (2, 7)):
        counts = parts[codes == name].bincount(minlength=3)
        assert counts.sum() == size and counts.max() - counts.min() <= 1
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(thirds(points[order], codes[order]), parts[order])


def test_head_learns_from_a_sample_of_many_rows():
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(30_000) % 3
    features = torch.nn.functional.normalize(torch.randn(3, 8, generator=generator)[classes] + 0.3 * torch.randn(30_000, 8, generator=generator)) * 10
    sample, whole = (train_head(features, torch.eye(3)[classes], torch.rand(30_000, generator=generator), 1e-3, steps=50, most=most)(features).argmax(1)
                     for most in (10_000, 30_000))
    assert (sample == whole).float().mean() > 0.99 and (whole == classes).float().mean() > 0.9


def test_mixes_are_distributions_from_graph_to_head():
    generator = torch.Generator().manual_seed(0)
    graph, head, alone = torch.rand(3, 5, 4, generator=generator).softmax(2)
    logs = mixes(graph, head, alone)
    assert torch.allclose(logs.exp().sum(2), torch.ones(6, 5)) and torch.allclose(logs[0].exp(), graph) and torch.allclose(logs[4].exp(), head)


@pytest.mark.parametrize("balance", ["estimated", "labels", None, [1.0, 2, 3, 4]])
@pytest.mark.parametrize("each", [1, 2, 6])
def test_answers_are_distributions(blobs, balance, each):
    points, classes, graph = blobs
    labeled = torch.arange(4 * each)
    taught = spread_with_head(graph, labeled, classes[labeled], balance=balance, rounds=3)
    assert torch.allclose(taught.labels.sum(1), torch.ones(600), atol=1e-5) and (taught.labels >= 0).all()
    assert (taught.labels.argmax(1) == classes).float().mean() > 0.5
    assert (taught.choice.evidence is None) == (each == 1)
    assert torch.allclose(taught.answer(points, taught.graph), taught.labels)
    if isinstance(balance, list):
        assert torch.allclose(taught.masses, torch.tensor(balance) / 10, atol=1e-5)


def test_a_class_with_one_label_is_never_left_out(blobs):
    _, classes, graph = blobs
    labeled = torch.cat([torch.arange(0, 600, 4)[:6], torch.arange(1, 600, 4)[:6], torch.arange(2, 600, 4)[:6], torch.tensor([3])])
    taught = spread_with_head(graph, labeled, classes[labeled])
    assert len(taught.choice.evidence["codes"]) == 18 and not (taught.choice.evidence["codes"] == 3).any()
    right, confidence, weights = left_out_answers(taught.choice.evidence)
    assert right.shape == confidence.shape == weights.shape == (18,) and math.isclose(weights.mean(), 1, rel_tol=1e-5)


def test_wrong_masses_are_refused(blobs):
    _, classes, graph = blobs
    with pytest.raises(ValueError, match="balance must hold 4"):
        spread_with_head(graph, torch.arange(8), classes[:8], balance=[1.0, 2.0])
