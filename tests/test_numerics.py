"""Properties of neighbours, densities and propagation that hold for any points: symmetry, order, sums, limits."""

import math
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from references import rounding

from pmlp.density import path_density
from pmlp.neighbors import knn
from pmlp.propagation import SIMILARITIES, affinity, label_propagation, propagate

seeds = st.integers(0, 2**20)
counts = st.integers(2, 60)
widths = st.integers(1, 20)
scales = st.sampled_from([1e-3, 1.0, 30.0])
bandwidths = st.sampled_from([1e-3, 0.01, 0.5, 5.0, 1e4])
supports = st.sampled_from([None, 1, 3, 45])


def random_points(seed, count, width, scale=1.0, duplicates=False):
    """Gaussian points, half of them repeated if wanted, and the generator to go on with."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, width, generator=generator) * scale
    if duplicates:
        points[count // 2 :] = points[: count - count // 2].clone()
    return points, generator


def random_sources(count, generator):
    """Sources for about a third of the points, at least one, in three classes."""
    sources = torch.rand(count, 3, generator=generator) * (torch.rand(count, 1, generator=generator) < 0.3)
    sources[0] = torch.tensor([1.0, 0.0, 0.0])
    return sources


@given(seeds, counts, widths, scales, st.booleans(), st.integers(1, 10))
def test_neighbors_are_the_nearest_others(seed, count, width, scale, duplicates, k):
    points, _ = random_points(seed, count, width, scale, duplicates)
    k = min(k, count - 1)
    found = knn(points, k)
    exact = (points.double()[:, None] - points.double()[None]).square().sum(-1).fill_diagonal_(math.inf)
    # float32 differences are right to a rounding error for each feature
    torch.testing.assert_close(found.sqdist.double(), exact.sort(1).values[:, :k], rtol=width * 2**-22, atol=1e-30)
    torch.testing.assert_close(found.sqdist.double(), exact.gather(1, found.ids), rtol=width * 2**-22, atol=1e-30)
    assert (found.ids.sort(1).values.diff(dim=1) > 0).all()


@given(seeds, counts, widths, bandwidths, supports, st.sampled_from([1, 3, 4]), st.sampled_from(["avg", "min", "max", 0.3]))
def test_density_is_symmetric_finite_and_at_most_one(seed, count, width, bandwidth, support, path_points, reduce):
    points, generator = random_points(seed, count, width)
    pairs = torch.randint(count, (40, 2), generator=generator)
    settings = dict(bandwidth=bandwidth, support=support, path_points=path_points, reduce=reduce, log=True)
    logs = path_density(points, pairs, **settings)
    assert torch.isfinite(logs).all()
    assert logs.max() <= rounding(points, bandwidth)
    assert torch.equal(logs, path_density(points, pairs.flip(1), **settings))


@given(seeds, counts, widths, bandwidths, supports, st.sampled_from(["absolute", "relative"]))
def test_density_follows_the_points(seed, count, width, bandwidth, support, kind):
    points, generator = random_points(seed, count, width)
    pairs = torch.randint(count, (40, 2), generator=generator)
    order = torch.randperm(count, generator=generator)
    settings = dict(bandwidth=bandwidth, support=support, kind=kind, log=True)
    shuffled = path_density(points[order], order.argsort()[pairs], **settings)
    tolerance = 4 * rounding(points, bandwidth)  # two results, three densities each
    torch.testing.assert_close(shuffled, path_density(points, pairs, **settings), rtol=0, atol=tolerance)


@given(seeds, counts, widths, st.booleans(), st.sampled_from(SIMILARITIES), st.integers(1, 8))
def test_affinity_is_symmetric_and_not_negative(seed, count, width, duplicates, similarity, k):
    points, _ = random_points(seed, count, width, duplicates=duplicates)
    dense = affinity(points, knn(points, min(k, count - 1)), similarity=similarity, temperature=width).to_dense()
    assert torch.equal(dense, dense.T)
    assert (dense >= 0).all() and (dense.diagonal() == 0).all() and torch.isfinite(dense).all()


@given(seeds, counts, st.sampled_from([0.1, 0.8, 0.99]), st.sampled_from([None, "labels"]))
def test_propagated_rows_are_distributions(seed, count, alpha, balance):
    _, generator = random_points(seed, count, 1)
    weights = torch.rand(count, count, generator=generator) * (torch.rand(count, count, generator=generator) < 0.1)
    labels = propagate(weights + weights.T, random_sources(count, generator), alpha=alpha, balance=balance)
    assert (labels >= 0).all()
    torch.testing.assert_close(labels.sum(1), torch.ones(count), rtol=0, atol=1e-6)


@given(seeds, counts, widths, supports, st.sampled_from(["absolute", "relative", None]), st.sampled_from(["all", "low_to_high"]))
def test_label_propagation_follows_the_points(seed, count, width, support, density, edges):
    points, generator = random_points(seed, count, width)
    sources = random_sources(count, generator)
    order = torch.randperm(count, generator=generator)
    settings = dict(k=5, support=support, density=density, edges=edges, temperature=float(width))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # k is capped on small graphs
        labels = label_propagation(points, sources, **settings)
        shuffled = label_propagation(points[order], sources[order], **settings)
    assert (labels >= 0).all()
    torch.testing.assert_close(labels.sum(1), torch.ones(count), rtol=0, atol=1e-6)
    torch.testing.assert_close(shuffled, labels[order], rtol=0, atol=1e-4)


@given(seeds, st.integers(20, 60), st.floats(1e-6, 1e6))
def test_a_factor_on_all_weights_changes_nothing(seed, count, factor):
    points, generator = random_points(seed, count, 4)
    weights = affinity(points, knn(points, 5), temperature=4.0)
    sources = random_sources(count, generator)
    torch.testing.assert_close(propagate(weights * factor, sources), propagate(weights, sources), rtol=0, atol=1e-5)


@given(seeds, counts)
def test_an_infinite_bandwidth_is_plain_propagation(seed, count):
    points, generator = random_points(seed, count, 4)
    sources = random_sources(count, generator)
    settings = dict(k=min(5, count - 1), temperature=4.0)
    plain = label_propagation(points, sources, density=None, **settings)
    for density in ("absolute", "relative"):
        assert torch.equal(label_propagation(points, sources, bandwidth=math.inf, density=density, **settings), plain)


def test_no_gradient_is_recorded():
    points = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    sources = torch.eye(30)[:, :3]
    assert not label_propagation(points, sources, k=5).requires_grad


def peak_megabytes(reset=False):
    """Peak memory of this process; with `reset` it starts anew from what is in use."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads peak memory as Linux tells it")
@pytest.mark.parametrize("support, limit", [(None, 400), (512, 1900)])
def test_twenty_thousand_points_stay_within_memory(support, limit):
    """All distances would take 1,600 MB: all points need no such matrix, the nearest 512 one of them, never two."""
    points = torch.randn(20_000, 8, generator=torch.Generator().manual_seed(0))
    pairs = torch.stack([torch.arange(0, 20_000, 2), torch.arange(1, 20_000, 2)], dim=1)
    path_density(points[:1000], pairs[:400], support=support)  # threads and libraries take memory once
    before = peak_megabytes(reset=True)
    assert torch.isfinite(path_density(points, pairs, support=support, log=True)).all()
    assert peak_megabytes() - before < limit
