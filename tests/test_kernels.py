"""Sums of kernels along lines: a matrix, lists and a search against the definition, on duplicates, and with approximate indices."""

import math

import numpy as np
import pytest
import torch
from helpers import message
from references import densities_by_definition, rounding

from pmlp import kernels
from pmlp.kernels import (
    DistanceMatrix, Line, LineSearch, NeighborLists, all_points_sums, choose_distances, list_length, listed_logs, lists_pay, log_mean_exp,
    nearest_logs, neighbor_lists, sampled_product, searched_logs, squared_distances, unique_keys,
)  # fmt: skip
from pmlp.neighbors import knn


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=tolerance)


def by_definition(points, pairs, line):
    return densities_by_definition(points, pairs, line.path_points, line.support, line.bandwidth, line.exclude_ends)


def test_distances_far_from_the_origin():
    points = torch.randn(300, 16, generator=generator()) + 100
    direct = (points.double()[:, None] - points.double()[None]).square().sum(-1)
    close(squared_distances(points), direct)
    close(squared_distances(points, torch.tensor([7, 3]), torch.tensor([5])), direct[[7, 3], 5][:, None])
    copies = squared_distances(torch.cat([points, points]))
    assert (copies.diagonal() == 0).all() and (copies[:300, 300:].diagonal() == 0).all() and (copies == 0).sum() == 4 * 300


def test_sampled_product():
    left, right = torch.rand(2, 5, 40, generator=generator())
    pairs = torch.tensor([[0, 1], [0, 4], [2, 2], [3, 0]])
    close(sampled_product(left, right, pairs), (left @ right.T)[pairs[:, 0], pairs[:, 1]])


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor])
def test_log_mean_exp(array):
    exponents = -5 * np.random.default_rng(0).random((4, 6)).astype(np.float32)
    expected = np.log(np.exp(exponents).mean(1))
    for shift in (True, False):
        np.testing.assert_allclose(np.asarray(log_mean_exp(array(exponents.copy()), shift)), expected, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(log_mean_exp(array(exponents - 1000))), expected - 1000, rtol=1e-5)


@pytest.fixture(scope="module")
def cloud():
    return torch.randn(200, 8, generator=generator())


PAIRS = torch.tensor([[0, 5], [0, 9], [3, 4], [3, 150], [70, 199]])


@pytest.mark.parametrize("exclude_ends", [False, True])
def test_sums_over_all_points_and_over_the_nearest(cloud, exclude_ends):
    """The two functions behind DistanceMatrix, each with the term in |a - b|² still to add."""
    line = Line(3, exclude_ends=exclude_ends)
    ends, rows = PAIRS.unique(return_inverse=True)
    length = (cloud[PAIRS[:, 0]] - cloud[PAIRS[:, 1]]).square().sum(1)
    term = length[:, None] * torch.tensor([t * (1 - t) for t in line.fractions]) / line.bandwidth
    sums = all_points_sums(lambda columns: squared_distances(cloud, ends, columns), 200, ends, rows, line)
    close((sums / (200 - 2 * exclude_ends)).log() + term, by_definition(cloud, PAIRS, line))
    for support in (1, 45, 198):
        some = line._replace(support=support)
        close(nearest_logs(squared_distances(cloud, ends), ends, rows, some) + term, by_definition(cloud, PAIRS, some))


@pytest.mark.parametrize("bandwidth", [5.0, 0.01])  # with kernels, and with shifted exponents
def test_more_than_all_points_are_all_points(cloud, bandwidth):
    ends, rows = PAIRS.unique(return_inverse=True)
    found = [nearest_logs(squared_distances(cloud, ends), ends, rows, Line(3, support, bandwidth)) for support in (999, 200)]
    assert torch.equal(*found)


@pytest.mark.parametrize("kept", [False, True])
def test_a_matrix(cloud, kept):
    matrix = DistanceMatrix(cloud, squared_distances(cloud) if kept else None)
    for line in (Line(3), Line(3, 45), Line(3, 45, exclude_ends=True), Line(1, None, 0.01), Line(1, None, 0.01, exclude_ends=True)):
        close(matrix.logs(PAIRS, line), by_definition(cloud, PAIRS, line), rounding(cloud, line.bandwidth))
    own = by_definition(cloud, torch.tensor([[4, 4], [9, 9]]), Line(support=45))[:, 0]
    close(matrix.own_logs(torch.tensor([4, 9]), Line(3, 45)), own)
    assert torch.equal(matrix.neighbors(7).ids, knn(cloud, 7).ids)
    ids = torch.tensor([8, 3, 120])
    close(matrix.subset(ids).rows(torch.arange(3)), squared_distances(cloud)[ids][:, ids])
    close(matrix.rows(ids, torch.tensor([1])), squared_distances(cloud, ids, torch.tensor([1])))


def test_a_matrix_of_other_points_is_refused(cloud):
    assert message(DistanceMatrix, cloud, torch.zeros(3, 3)).startswith("sqdist")


@pytest.mark.parametrize("exclude_ends", [False, True])
def test_lists_of_many_duplicates(exclude_ends):
    """Ties on every rim, end points in and out of the support."""
    twins = torch.randint(0, 3, (400, 3), generator=generator()).float()
    twins -= twins.mean(0)
    pairs = torch.randint(0, 400, (200, 2), generator=generator(1))
    line = Line(1, 8, 1.0, exclude_ends=exclude_ends)
    expected = by_definition(twins, pairs, line)
    lists = neighbor_lists(twins, 26)
    listed = listed_logs(twins, lists, pairs, line)
    length = (twins[pairs[:, 0]] - twins[pairs[:, 1]]).square().sum(1, keepdim=True)
    close((listed.logs + 0.25 * length)[listed.certified], expected[listed.certified])
    for found in (searched_logs(twins, lists.search, pairs, line), lists.logs(pairs, line), LineSearch(twins).logs(pairs, line)):
        close(found, expected)
    close(lists.own_logs(torch.arange(400), line), by_definition(twins, torch.arange(400)[:, None].repeat(1, 2), line)[:, 0])


def test_lists_of_all_points_are_always_certified(cloud):
    few, pairs, line = cloud[:20] - cloud[:20].mean(0), PAIRS % 20, Line(1, 8, 1.0)
    lists = neighbor_lists(few, 26)
    assert listed_logs(few, lists, pairs, line).certified.all()
    close(lists.logs(pairs, line), by_definition(few, pairs, line))


@pytest.fixture(scope="module")
def crowd():
    """6,000 points in 20 clusters, and 10 edges from each."""
    centres = torch.randn(20, 32, generator=generator())
    points = centres[torch.arange(6000) % 20] + 0.6 * torch.randn(6000, 32, generator=generator(1))
    points -= points.mean(0)
    return points, torch.stack([torch.arange(6000).repeat_interleave(10), knn(points, 10).ids.reshape(-1)], dim=1)


def test_long_lists_are_certified_and_short_ones_are_not(crowd):
    points, edges = crowd
    line, edges = Line(3, 45), edges[::7]
    expected = DistanceMatrix(points).logs(edges, line)
    shares = []
    for length in (45, round(1.5 * 45), list_length(45)):
        lists = neighbor_lists(points, length)
        shares.append(listed_logs(points, lists, edges, line).certified.float().mean().item())
        close(lists.logs(edges, line), expected, 2 * rounding(points, 5.0))
    assert shares[0] < 0.9 < shares[2] and shares == sorted(shares)


def test_lists_from_an_index_that_finds_too_few(crowd):
    points, edges = crowd
    owners = torch.arange(0, 6000, 3)
    few = neighbor_lists(points, 137, owners, index="IVF100,Flat;nprobe=1")
    assert torch.isfinite(few.sqdist[:, :100]).all() and few.ids.min() >= 0
    assert torch.equal(few.ids[:, 0].long(), owners)
    pairs = owners[torch.randint(len(owners), (50, 2), generator=generator())]
    assert torch.isfinite(few.logs(pairs, Line(support=45))).all()


def test_the_radius_is_in_a_gap():
    lists = torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0, 6.0], [0.0, 1.0, 2.0, 2.0, 2.0, 2.0], [0.0, 1.0, 2.0, 3.0, 4.0, 4.0 + 2e-6]])
    assert kernels.cut_in_gap(lists, slack=1e-6).tolist() == [5.0, -math.inf, -math.inf]


def test_pairs_are_grouped_by_owner():
    owner, members = kernels.group_by_owner(torch.tensor([4, 0, 4, 4, 0]), width=2)
    assert owner.tolist() == [0, 4, 4] and members.tolist() == [[1, 4], [0, 2], [3, -1]]
    assert kernels.group_by_owner(torch.zeros(5, dtype=torch.int64), width=2)[1].tolist() == [[0, 1], [2, 3], [4, -1]]


@pytest.mark.parametrize("length", [1000, 2**15 + 1])  # by NumPy, by torch
def test_unique_keys(length):
    keys = torch.randint(300, (length,), generator=generator())
    found, places = unique_keys(keys)
    assert found.tolist() == sorted(set(keys.tolist())) and torch.equal(found[places], keys)


@pytest.mark.parametrize("count, support, pairs, chosen", [
    (959, 20, 2000, DistanceMatrix), (960, 20, 2000, NeighborLists), (960, 20, 3, LineSearch), (960, None, 2000, DistanceMatrix),
])  # fmt: skip
def test_the_choice(count, support, pairs, chosen):
    points = torch.randn(count, 4, generator=generator())
    lines = torch.randint(count, (pairs, 2), generator=generator())
    assert lists_pay(count, support) == (chosen is not DistanceMatrix)
    assert isinstance(choose_distances(points, lines, Line(support=support)), chosen)
