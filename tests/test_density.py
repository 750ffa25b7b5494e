"""Densities on lines: against the definition and scikit-learn, in every way they are computed, and on unusual input."""

import math

import numpy as np
import pytest
import torch
from helpers import message
from references import densities_by_definition, rounding
from sklearn.neighbors import KernelDensity, NearestNeighbors

from pmlp.density import check_pairs, density_ratio, line_densities, path_density, reduce_logs
from pmlp.kernels import DistanceMatrix, Line, list_length, neighbor_lists, squared_distances
from pmlp.neighbors import knn

bandwidths = pytest.mark.parametrize("bandwidth", [0.01, 0.1, 0.5, 5.0, 100.0])
clouds = pytest.mark.parametrize("kind_of_cloud", ["plain", "unit"])


def cloud(kind_of_cloud="plain"):
    """400 points and 60 lines between them."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(400, 16, generator=generator) * 2 + 1
    if kind_of_cloud == "unit":
        points = torch.nn.functional.normalize(torch.randn(400, 16, generator=generator))
    return points, torch.randint(0, 400, (60, 2), generator=generator)


def close(found, expected, tolerance):
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("quantile", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_a_quantile_is_that_of_torch(quantile):
    logs = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
    close(reduce_logs(logs, quantile).exp(), logs.exp().quantile(quantile, dim=1), 1e-5)


def test_mean_median_and_extremes():
    logs = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
    close(reduce_logs(logs, "avg").exp(), logs.exp().mean(1), 1e-5)
    assert torch.equal(reduce_logs(logs, "median"), logs.median(1).values)
    assert torch.equal(reduce_logs(logs, "min"), logs.amin(1)) and torch.equal(reduce_logs(logs, "max"), logs.amax(1))


@clouds
@bandwidths
@pytest.mark.parametrize("path_points", [1, 3, 5])
def test_the_definition(kind_of_cloud, bandwidth, path_points):
    points, pairs = cloud(kind_of_cloud)
    for support in (None, 6, 45):  # 6 is answered from lists, 45 by partition
        for exclude_ends in (False, True):
            settings = dict(path_points=path_points, support=support, bandwidth=bandwidth, exclude_ends=exclude_ends)
            expected = reduce_logs(densities_by_definition(points, pairs, **settings), "avg")
            close(path_density(points, pairs, log=True, **settings), expected, rounding(points, bandwidth))


def scikit_learn_logs(support_points, places, bandwidth):
    """Log densities without the normalising constant; the default leaf size is inaccurate at small bandwidths."""
    model = KernelDensity(kernel="gaussian", bandwidth=math.sqrt(bandwidth / 2), leaf_size=len(support_points)).fit(support_points)
    return model.score_samples(places) + places.shape[1] / 2 * math.log(math.pi * bandwidth)


@clouds
@bandwidths
@pytest.mark.parametrize("support", [None, 6, 45])
def test_scikit_learn(kind_of_cloud, bandwidth, support):
    """scikit-learn knows no support of the nearest points, so it is fitted anew on those of every point on a line."""
    points, pairs = cloud(kind_of_cloud)
    pairs, table = pairs[:12], points.double().numpy()
    nearest = NearestNeighbors(n_neighbors=support or len(table), algorithm="brute").fit(table)
    for path_points in (1, 3, 5):
        expected = np.empty((len(pairs), path_points))
        for column, t in enumerate(Line(path_points).fractions):
            places = (1 - t) * table[pairs[:, 0]] + t * table[pairs[:, 1]]
            if support is None:
                expected[:, column] = scikit_learn_logs(table, places, bandwidth)
            else:
                ids = nearest.kneighbors(places, return_distance=False)
                expected[:, column] = [scikit_learn_logs(table[ids[row]], places[[row]], bandwidth)[0] for row in range(len(pairs))]
        found = path_density(points, pairs, path_points=path_points, support=support, bandwidth=bandwidth, log=True)
        close(found, reduce_logs(torch.from_numpy(expected), "avg"), rounding(points, bandwidth))


@pytest.mark.parametrize("support, bandwidth", [(None, 2.0), (None, 0.01), (6, 2.0), (45, 2.0), (45, 0.01), (398, 2.0), (399, 2.0)])
@pytest.mark.parametrize("exclude_ends", [False, True])
def test_relative_density(support, bandwidth, exclude_ends):
    points, pairs = cloud()
    settings = dict(support=support, bandwidth=bandwidth, exclude_ends=exclude_ends)
    own = torch.stack([densities_by_definition(points, pairs[:, [end, end]], **settings)[:, 0] for end in (0, 1)]).mean(0)
    expected = reduce_logs(densities_by_definition(points, pairs, path_points=3, **settings), "min") - own
    found = path_density(points, pairs, path_points=3, reduce="min", kind="relative", log=True, **settings)
    close(found, expected, 2 * rounding(points, bandwidth))


@pytest.mark.parametrize("kind", ["absolute", "relative"])
@pytest.mark.parametrize("support", [None, 6, 45])
def test_distances_that_are_known_change_nothing(kind, support):
    """Neither a matrix or lists made before nor a bound on memory."""
    points, pairs = cloud()
    line = Line(support=support, kind=kind)
    expected = line_densities(points, pairs, line)
    given = [DistanceMatrix(points), DistanceMatrix(points, squared_distances(points)), DistanceMatrix(points, max_memory=2**14)]
    if support is not None:
        given.append(neighbor_lists(points, list_length(support)))
    for distances in given:
        found = line_densities(points, pairs, line, distances)
        close(found.logs, expected.logs, 2 * rounding(points, 5.0))
        if kind == "relative":
            ends = pairs.unique()
            close(found.own[ends], expected.own[ends], 2 * rounding(points, 5.0))
            assert found.own.isnan().sum() == 400 - len(ends)
        else:
            assert found.own is None


@pytest.mark.parametrize("support", [None, 1, 20])
def test_duplicates_and_zero_vectors(support):
    generator = torch.Generator().manual_seed(0)
    some = torch.randn(30, 4, generator=generator) * 2 + 1
    points = torch.cat([torch.zeros(30, 4), some, some])
    pairs = torch.randint(0, 90, (40, 2), generator=generator)
    expected = densities_by_definition(points, pairs, support=support)[:, 0]
    close(path_density(points, pairs, support=support, log=True), expected, rounding(points, 5.0))


def test_two_points_and_no_lines():
    found = path_density(torch.tensor([[0.0], [2.0]]), torch.tensor([[0, 1]]), bandwidth=1.0)
    assert found.item() == pytest.approx(math.exp(-1), abs=1e-6)
    points, pairs = cloud()
    assert path_density(points, pairs[:0]).shape == (0,)


def test_the_scale_of_features_and_bandwidth():
    points, pairs = cloud()
    close(path_density(points, pairs, log=True), path_density(points * 2, pairs, bandwidth=20.0, log=True), 1e-5)
    assert path_density(points, pairs, bandwidth=math.inf).tolist() == [1.0] * 60
    tiny = path_density(points, pairs, bandwidth=1e-3, log=True)
    assert torch.isfinite(tiny).all() and path_density(points, pairs, bandwidth=1e-3).max() == 0


def test_one_point_on_a_line_needs_no_reduction():
    points, pairs = cloud()
    first, *others = [path_density(points, pairs, reduce=reduce) for reduce in ("avg", "min", "max", "median")]
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("settings, name", [
    (dict(path_points=0), "path_points"), (dict(path_points=1.0), "path_points"), (dict(support=0), "support"),
    (dict(support=True), "support"), (dict(bandwidth=0.0), "bandwidth"), (dict(bandwidth=-1), "bandwidth"),
    (dict(bandwidth=math.nan), "bandwidth"), (dict(bandwidth="5"), "bandwidth"), (dict(reduce="mean"), "reduce"),
    (dict(reduce=1.5), "reduce"), (dict(kind="log"), "kind"),
])  # fmt: skip
def test_impossible_choices_are_refused(settings, name):
    assert message(path_density, torch.randn(5, 1), torch.tensor([[0, 1]]), **settings).startswith(name)


@pytest.mark.parametrize("pairs", [[[0, 1]], torch.tensor([[0, 1]]).int(), torch.tensor([0, 1]), torch.tensor([[0, 5]]), torch.tensor([[-1, 0]])])
def test_impossible_pairs_are_refused(pairs):
    assert message(check_pairs, pairs, 5).startswith("pairs")
    assert message(path_density, torch.randn(5, 1), pairs).startswith("pairs")


def test_points_without_density_are_refused():
    pairs = torch.tensor([[0, 1]])
    assert "exclude_ends" in message(path_density, torch.tensor([[0.0], [1.0]]), pairs, exclude_ends=True)
    assert "points" in message(path_density, torch.full((3, 2), math.nan), pairs)


def test_density_ratio():
    points, _ = cloud("unit")
    edges = torch.stack([torch.arange(400).repeat_interleave(15), knn(points, 15).ids.reshape(-1)], dim=1)
    ratio = density_ratio(points, edges, bandwidth=0.5)
    densities = path_density(points, edges, bandwidth=0.5)
    low, high = densities.quantile(torch.tensor([0.05, 0.95]))
    assert ratio.within == 1.0  # with one point on each line
    assert ratio.between == pytest.approx((densities.max() / densities.min()).item(), rel=1e-4)
    assert ratio.between_90 == pytest.approx((high / low).item(), rel=1e-3)
    assert density_ratio(points, edges, bandwidth=math.inf) == (1.0, 1.0, 1.0)
    logs = densities_by_definition(points, edges[:50], path_points=3, bandwidth=0.5)
    within = (logs.amax(1) - logs.amin(1)).exp().mean().item()
    assert density_ratio(points, edges[:50], path_points=3, bandwidth=0.5).within == pytest.approx(within, rel=1e-5)
    assert message(density_ratio, points, edges[:0]).startswith("pairs")
