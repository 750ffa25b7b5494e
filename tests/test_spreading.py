"""The graph of a table and what is spread over it: definitions by slow loops, groups without labels, refusals."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import message

from pmlp.density import path_density
from pmlp.kernels import Line
from pmlp.neighbors import knn, search_function
from pmlp.propagation import affinity
from pmlp.spreading import cache_friendly_order, confident_sources, first_to_label, leave_one_out, recall, spread, table_graph

RELATIVE = Line(support=45, bandwidth="auto", kind="relative")
ROUNDS = dict(alpha=0.99, second_alpha=0.9, balance="labels")


@pytest.fixture(scope="module")
def cloud():
    return torch.randn(3000, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def apart():
    """Three groups of three that no edge connects."""
    points = torch.tensor([[0.0], [1.0], [2.0], [50.0], [51.0], [52.0], [99.0], [100.0], [101.0]])
    return table_graph(points, 2, None, temperature=1.0)


def test_an_exact_index_finds_all_neighbours(cloud):
    assert recall(cloud, search_function(cloud - cloud.mean(0))) == 1.0


@pytest.mark.parametrize("count", [500, 3000])  # without lists, and with lists that serve neighbours and densities
@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_the_weights_are_those_of_the_parts(cloud, count, kind):
    points, line = cloud[:count], RELATIVE._replace(path_points=3, reduce="min", kind=kind)
    graph, neighbors = table_graph(points, 15, line), knn(points, 15)
    pairs = torch.stack([torch.arange(count).repeat_interleave(15), neighbors.ids.reshape(-1)], dim=1)
    logs = path_density(points, pairs, **line._replace(bandwidth=graph.line.bandwidth)._asdict(), log=True).view(-1, 15)
    expected = affinity(points, neighbors, temperature=graph.temperature, log_density=logs)
    torch.testing.assert_close(graph.weights.to_dense(), expected.to_dense(), rtol=0, atol=1e-5)


def test_an_infinite_bandwidth_gives_the_plain_weights(cloud):
    infinite, plain = (table_graph(cloud, 15, line).weights for line in (RELATIVE._replace(bandwidth=math.inf), None))
    assert torch.equal(infinite.values(), plain.values())


def test_densities_at_points_with_many_duplicates(cloud):
    points = torch.cat([torch.zeros(1500, 8), cloud[:1500]])  # half of the points and more have no list
    found = table_graph(points, 15, RELATIVE._replace(bandwidth=2.0), temperature=2.0).own_logs
    sqdist = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    expected = (sqdist.topk(45, largest=False).values / -2.0).logsumexp(1) - math.log(45)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_confident_sources_are_those_of_a_slow_loop(share):
    labels = torch.rand(300, 4, generator=torch.Generator().manual_seed(1))
    chosen = confident_sources(labels, torch.zeros(300, 4), share)
    for label in range(4):
        members = [row for row in range(300) if labels[row].argmax() == label]
        ordered = sorted(members, key=lambda row: -np.subtract(*np.sort(labels[row].numpy())[[-1, -2]]))
        assert sorted(ordered[: math.ceil(share * len(members))]) == chosen[:, label].nonzero().squeeze(1).tolist()


def test_rows_whose_classes_are_equal_are_no_confident_sources():
    assert not confident_sources(torch.full((4, 3), 1 / 3), torch.zeros(4, 3), 1).any()


@pytest.mark.parametrize("confident", [0, 0.8, 1])
def test_a_group_without_label_stays_undecided(apart, confident):
    sources = torch.zeros(9, 2)
    sources[[0, 3], [0, 1]] = 1
    labels = spread(apart.weights, sources, confident=confident, **ROUNDS)
    assert labels.tolist() == [[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3 + [[0.5, 0.5]] * 3


def test_impossible_choices_are_refused(apart):
    assert "k must" in message(table_graph, apart.points, 0, None)
    assert "points" in message(table_graph, apart.points * math.nan, 2, None)
    assert "balance" in message(spread, apart.weights, torch.eye(9)[:, :2], confident=0.8, **ROUNDS | dict(balance="equal"))


def test_a_class_with_one_label_cannot_be_judged(apart):
    found = leave_one_out(apart.weights, torch.arange(3), torch.arange(3), 0.9)
    assert all(math.isnan(value) for value in found)


def test_the_first_rows_do_not_depend_on_order_scale_or_kind_of_the_table(cloud):
    points = cloud[:400]
    first = first_to_label(points, 12)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(2))
    assert order[first_to_label(points[order], 12)].tolist() == first.tolist()
    for scale in (1e-6, 1e6):
        assert first_to_label(scale * points, 12).tolist() == first.tolist()
    for table in (points.numpy(), points.double(), pd.DataFrame(points.numpy())):
        assert first_to_label(table, 12).tolist() == first.tolist()
    assert first_to_label(points, 5).tolist() == first[:5].tolist()


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, pd.Series])
def test_the_first_rows_go_on_from_labelled_ones(cloud, kind):
    first = first_to_label(cloud, 12).tolist()
    assert first_to_label(cloud, 5, labeled=kind(first[6:0:-1] + first[:1])).tolist() == first[7:]


@pytest.mark.parametrize("labeled", [[9], [-1], [0.5], [True] * 9, [[0, 1]]])
def test_numbers_of_no_row_are_refused(apart, labeled):
    assert "labeled must hold numbers of rows, from 0 to 8" in message(first_to_label, apart.points, 2, labeled=labeled)
    assert "n must be a whole number from 1 to 7" in message(first_to_label, apart.points, 8, labeled=[0, 1, 1])


@pytest.mark.parametrize("count", [1, 2, 9])
def test_the_first_rows_of_three_groups(apart, count):
    first = first_to_label(apart.points, count, n_neighbors=2)
    assert len(set(first.tolist())) == count and isinstance(first, np.ndarray)
    assert len(set(first[:3] // 3)) == min(count, 3)  # one of each group


def test_the_first_row_has_the_largest_degree(cloud):
    assert first_to_label(cloud, 1).item() == table_graph(cloud, 15, None).weights.to_dense().sum(1).argmax()


def test_rows_that_repeat_are_named_once(cloud):
    copies = torch.cat([cloud[:50]] * 4 + [torch.zeros(60, 8)])
    assert sorted(first_to_label(copies, len(copies)).tolist()) == list(range(len(copies)))
    first = copies[first_to_label(copies, 8)]
    assert len(first.unique(dim=0)) == 8
    assert first_to_label(torch.zeros(5, 2), 5, n_neighbors=2).tolist() == [0, 1, 2, 3, 4]
    assert first_to_label(torch.zeros(1, 2), 1).tolist() == [0]


def test_a_large_table_is_sorted_and_the_rows_keep_their_numbers(cloud, monkeypatch):
    expected = first_to_label(cloud, 4)
    monkeypatch.setattr("pmlp.spreading.cache_friendly_order", lambda points: cache_friendly_order(points, smallest=1000))
    assert first_to_label(cloud, 4).tolist() == expected.tolist()


@pytest.mark.parametrize("count", [0, -1, 10, 2.5, True])
def test_an_impossible_number_of_first_rows_is_refused(apart, count):
    sentence = message(first_to_label, apart.points, count)
    assert sentence.startswith("n must be a whole number from 1 to 9") and "ask for" in sentence


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_table_that_is_not_finite_has_no_first_rows(cloud, value):
    table = cloud[:20].clone()
    table[3, 2] = value
    for broken in (table, table.numpy()):
        assert message(first_to_label, broken, 2).startswith("X must be finite")
