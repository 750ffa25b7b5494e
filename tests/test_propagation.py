"""What label propagation refuses, what it survives, and what must not change its result."""

import math
import warnings

import pytest
import torch
from helpers import message
from sklearn.datasets import make_moons

from pmlp.density import path_density
from pmlp.kernels import DistanceMatrix, Line, squared_distances
from pmlp.neighbors import knn
from pmlp.propagation import (
    SIMILARITIES, affinity, build_graph, check_similarity, label_propagation, log_similarity, measure, normalized_weights, propagate, solve,
)


@pytest.fixture(scope="module")
def cloud():
    return torch.randn(120, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def sources():
    return one_hot_sources(120)


@pytest.fixture(scope="module")
def weights():
    """A graph of 500 points and their 15 nearest neighbours."""
    points = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    return affinity(points, knn(points, 15))


def one_hot_sources(count, given=12):
    """Three classes, the first points as sources."""
    sources = torch.zeros(count, 3)
    sources[torch.arange(given), torch.arange(given) % 3] = 1
    return sources


@pytest.mark.parametrize("shape", ["as drawn", "unit", "large", "zero"])
def test_the_cosine_is_that_of_torch(shape):
    points = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    points = {"as drawn": points, "unit": torch.nn.functional.normalize(points), "large": 1e4 * points, "zero": 0 * points}[shape]
    pairs = torch.arange(30).reshape(15, 2)
    a, b = points[pairs[:, 0]], points[pairs[:, 1]]
    found = log_similarity(points, pairs, (a - b).square().sum(1), "cosine").exp()
    torch.testing.assert_close(found, torch.cosine_similarity(a, b).clamp_min(0), rtol=0, atol=1e-6)


def test_first_order_is_the_exponential_of_the_cosine_up_to_a_factor():
    unit = torch.nn.functional.normalize(torch.randn(30, 5, generator=torch.Generator().manual_seed(0)))
    pairs = torch.arange(30).reshape(15, 2)
    a, b = unit[pairs[:, 0]], unit[pairs[:, 1]]
    logs, cosine = log_similarity(unit, pairs, (a - b).square().sum(1)), (a * b).sum(1)
    torch.testing.assert_close(logs - logs[0], (cosine - cosine[0]) / 0.2, rtol=0, atol=1e-5)


def test_two_points_in_one_place_are_finite():
    assert log_similarity(torch.zeros(2, 5), torch.tensor([[0, 1]]), torch.zeros(1), "euclidean").tolist() == [0.0]


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_duplicates_and_zero_vectors_have_finite_weights(similarity):
    points = torch.zeros(5, 3)
    assert torch.isfinite(affinity(points, knn(points, 2), similarity=similarity).values()).all()


@pytest.mark.parametrize("similarity, temperature, part", [
    ("manhattan", 0.2, "similarity"), ("first_order", 0, "temperature"), ("first_order", True, "temperature"),
    ("first_order", "0.2", "temperature"), ("first_order", math.inf, "temperature"), ("first_order", math.nan, "temperature"),
])
def test_impossible_similarities_are_refused(cloud, similarity, temperature, part):
    settings = dict(similarity=similarity, temperature=temperature)
    assert part in message(check_similarity, **settings)
    assert part in message(affinity, cloud, knn(cloud, 6), **settings)
    assert part in message(measure, cloud, torch.tensor([[0, 1]]), **settings)


def test_affinity_refuses_what_does_not_fit(cloud):
    neighbors = knn(cloud, 6)
    assert "neighbors" in message(affinity, cloud[:10], neighbors)
    assert "ids from 0 to 119" in message(affinity, cloud, neighbors._replace(ids=neighbors.ids + 60))
    for log_density in (torch.zeros(3), torch.full((120, 6), math.nan), torch.full((120, 6), math.inf)):
        assert "log_density" in message(affinity, cloud, neighbors, log_density=log_density)


def test_weights_too_weak_for_float32_are_told(cloud):
    with pytest.warns(UserWarning, match="raise temperature"):
        affinity(cloud * 100, knn(cloud * 100, 6))


def test_an_infinite_bandwidth_gives_the_plain_weights(cloud):
    neighbors = knn(cloud, 6)
    pairs = torch.stack([torch.arange(120).repeat_interleave(6), neighbors.ids.reshape(-1)], dim=1)
    log_density = path_density(cloud, pairs, bandwidth=math.inf, log=True).view(120, 6)
    plain = affinity(cloud, neighbors).values()
    assert torch.equal(affinity(cloud, neighbors, log_density=log_density).values(), plain)
    assert torch.equal(build_graph(cloud, neighbors, Line(bandwidth=math.inf)).weights.values(), plain)


def test_a_point_without_edges_keeps_an_empty_row():
    assert normalized_weights(torch.zeros(2, 2).to_sparse_csr()).to_dense().tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_an_iteration_that_ends_too_early_says_so(weights):
    with pytest.warns(UserWarning, match="choose an alpha further below 1"):
        solve(normalized_weights(weights), one_hot_sources(500, 9).double(), 0.999999, max_iterations=50)


@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-3])
def test_the_entry_regularizer_is_that_of_a_dense_solution(weights, size):
    sources = one_hot_sources(500, 9)
    plain = torch.eye(500, dtype=torch.float64) - 0.8 * normalized_weights(weights).to_dense()
    expected, without = (torch.linalg.solve(dense, sources.double()).clamp_min(0) for dense in (plain + size, plain))
    kept = expected.sum(1) > 0.1 * without.sum(1)  # where little is left, rounding decides
    assert kept.float().mean() > 0.1
    found = propagate(weights, sources, entry_regularizer=size)
    expected = (expected / expected.sum(1, keepdim=True)).float()
    torch.testing.assert_close(found[kept], expected[kept], rtol=0, atol=1e-4)


@pytest.mark.parametrize("settings, part", [
    (dict(alpha=0.0), "alpha"), (dict(alpha=1), "alpha"), (dict(alpha=math.nan), "alpha"), (dict(iterate=0), "iterate"),
    (dict(balance="prior"), "balance"), (dict(balance=torch.ones(2)), "balance"), (dict(balance=[-1.0, 1, 1]), "balance"),
    (dict(entry_regularizer=-1.0), "entry_regularizer"), (dict(entry_regularizer=1e-7, iterate=3), "entry_regularizer"),
])
def test_propagate_refuses_impossible_settings(weights, settings, part):
    assert part in message(propagate, weights, one_hot_sources(500), **settings)


@pytest.mark.parametrize("change", [lambda sources: sources[:9], torch.neg, lambda sources: sources * math.nan, torch.zeros_like])
def test_propagate_refuses_impossible_sources(weights, change):
    assert "sources" in message(propagate, weights, change(one_hot_sources(500)))


@pytest.mark.parametrize("weights, part", [
    (torch.ones(3, 4), "a square"), (torch.full((3, 3), math.nan), "finite"), (torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]), "symmetric"),
])
def test_propagate_refuses_impossible_weights(weights, part):
    assert f"weights must be {part}" in message(propagate, weights, torch.eye(3))


@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.99])
def test_one_label_each_reaches_all_of_two_thin_moons(alpha):
    points, moon = (torch.tensor(part) for part in make_moons(600, noise=0.03, random_state=0))
    weights = affinity(points, knn(points, 8))
    sources = torch.zeros(600, 2)
    sources[(moon == 0).nonzero()[0], 0] = sources[(moon == 1).nonzero()[0], 1] = 1
    labels, long_run = propagate(weights, sources, alpha=alpha), propagate(weights, sources, alpha=alpha, iterate=3000)
    torch.testing.assert_close(labels, long_run, rtol=0, atol=1e-4)


@pytest.mark.parametrize("support", [None, 2, 30])
@pytest.mark.parametrize("density", ["absolute", "relative", None])
def test_label_propagation_builds_the_graph_and_then_propagates(cloud, sources, support, density):
    line = None if density is None else Line(support=support, kind=density)
    labels = label_propagation(cloud, sources, support=support, density=density)
    two_calls = propagate(build_graph(cloud, knn(cloud, 15), line).weights, sources)
    torch.testing.assert_close(two_calls, labels, rtol=0, atol=1e-5)
    assert torch.equal(label_propagation(cloud, sources, support=support, density=density), labels)  # twice the same, to the bit


@pytest.mark.parametrize("support", [None, 2, 30])
def test_known_distances_change_nothing_but_rounding(cloud, sources, support):
    known = DistanceMatrix(cloud, squared_distances(cloud))
    found = label_propagation(cloud, sources, support=support, distances=known)
    torch.testing.assert_close(found, label_propagation(cloud, sources, support=support), rtol=0, atol=1e-5)


@pytest.mark.parametrize("settings, part", [
    (dict(k=0), "k must"), (dict(alpha=1.5), "alpha"), (dict(bandwidth=0), "bandwidth"), (dict(edges="some"), "edges"),
    (dict(density="mean"), "density"), (dict(similarity="l1"), "similarity"), (dict(temperature=-1.0), "temperature"),
    (dict(reduce="sum"), "reduce"), (dict(support=0), "support"), (dict(path_points=0), "path_points"),
])
def test_label_propagation_refuses_impossible_settings(cloud, sources, settings, part):
    assert part in message(label_propagation, cloud, sources, **settings)


def test_label_propagation_refuses_impossible_points_and_sources(cloud, sources):
    assert "points" in message(label_propagation, cloud * math.nan, sources)
    assert "sources" in message(label_propagation, cloud, sources[:3])


def test_two_points_share_one_label():
    labels = label_propagation(torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), k=1)
    assert labels.tolist() == [[1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("edges", ["all", "low_to_high"])
@pytest.mark.parametrize("density", ["absolute", "relative", None])
def test_unusual_points_still_give_distributions(cloud, sources, similarity, edges, density):
    for features in (torch.zeros(20, 2), torch.ones(20, 2), cloud[:20]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # k is larger than the number of points
            labels = label_propagation(features, sources[:20], k=50, similarity=similarity, edges=edges, density=density)
        torch.testing.assert_close(labels.sum(1), torch.ones(20), rtol=0, atol=1e-5)
