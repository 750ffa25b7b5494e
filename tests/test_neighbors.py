"""Neighbours that are hard to find: far from the origin, on top of each other, or in an index that finds too few."""

import math
import warnings

import pytest
import torch
from helpers import message

from pmlp.neighbors import build_index, check_k, check_points, knn, product_search, rank_candidates, search_function


def cloud(count, width, seed=0):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def recall(found, exact):
    """The share of the true neighbours that were found."""
    return (found.ids[:, :, None] == exact.ids[:, None]).any(-1).float().mean().item()


@pytest.mark.parametrize("points", [
    [[1.0]], torch.zeros(3), torch.zeros(0, 2), torch.zeros(2, 2, dtype=torch.cfloat), torch.zeros(2, 2, dtype=torch.bool), torch.full((2, 2), 1e30),
    torch.tensor([[0.0, math.nan]]), torch.tensor([[0.0, math.inf]]),
])  # fmt: skip
def test_what_is_no_table_of_numbers_is_refused(points):
    assert message(check_points, points, "features").startswith("features")


def test_any_real_numbers_become_float32():
    for dtype in (torch.uint8, torch.int64, torch.float16, torch.float64):
        assert torch.equal(check_points(torch.tensor([[0, 1], [2, 3]], dtype=dtype)), torch.tensor([[0.0, 1.0], [2.0, 3.0]]))


@pytest.mark.parametrize("k, available, words", [(0, 5, "k must"), (1.5, 5, "k must"), (True, 5, "k must"), (1, 0, "single row")])
def test_an_impossible_k_is_refused(k, available, words):
    assert words in message(check_k, k, available)


def test_too_large_a_k_is_capped_with_a_warning_that_points_at_the_call():
    with pytest.warns(UserWarning, match="k = 9 is capped at 4") as caught:
        assert knn(cloud(5, 1), 9).ids.shape == (5, 4)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("queries", [torch.zeros(2, 3), torch.full((2, 1), math.nan)])
def test_impossible_queries_are_refused(queries):
    assert message(knn, cloud(5, 1), 1, queries).startswith("queries")


def test_an_index_that_cannot_be_built_is_named():
    assert "Flut" in message(knn, cloud(5, 1), 1, index="Flut")
    assert "IVF16,Flat" in message(build_index, cloud(10, 8), "IVF16,Flat")


def test_far_from_the_origin():
    points = cloud(800, 16) + 1000
    exact = (points.double()[:, None] - points.double()).square().sum(-1).fill_diagonal_(math.inf).sort(1).values[:, :5]
    torch.testing.assert_close(knn(points, 5).sqdist.double(), exact, rtol=1e-4, atol=1e-4)


def test_ties_are_broken_by_id_and_no_point_is_its_own_neighbour():
    same = knn(torch.ones(6, 3), 2)
    assert same.ids.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]]
    assert (same.sqdist == 0).all()
    assert knn(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), 1).sqdist.tolist() == [[25.0], [25.0]]


def test_engines_agree_to_the_last_bit():
    points = cloud(1000, 16)
    found, again = knn(points, 15), knn(points, 15)
    assert torch.equal(found.ids, again.ids) and torch.equal(found.sqdist, again.sqdist)
    candidates = product_search(points, points, 20)[1]
    by_product = rank_candidates(points, points, candidates, 15, own=True)
    assert torch.equal(by_product.ids, found.ids) and torch.equal(by_product.sqdist, found.sqdist)
    known = torch.cdist(points.double(), points.double()).square().float()
    assert torch.equal(rank_candidates(points, points, candidates, 15, own=True, all_sqdist=known).ids, found.ids)
    in_blocks = product_search(points, points, 20, max_memory=2**16)
    torch.testing.assert_close(in_blocks[0], product_search(points, points, 20)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("queries", [100, 5000])  # in one part, in one for each thread
def test_parts_of_the_exact_search(queries):
    points, asked = cloud(700, 8), cloud(queries, 8, seed=1)
    sqdist, ids = search_function(points)(asked, 6)
    expected = torch.cdist(asked.double(), points.double()).square()
    torch.testing.assert_close(sqdist.double(), expected.sort(1).values[:, :6], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(expected.gather(1, ids).float(), sqdist, rtol=1e-4, atol=1e-4)


def test_more_cells_find_more():
    points = cloud(20_000, 16)
    exact = knn(points, 15)
    recalls = [recall(knn(points, 15, index=f"IVF128,Flat;nprobe={probes}"), exact) for probes in (1, 2, 4, 8, 16, 32)]
    assert recalls == sorted(recalls) and recalls[-1] > 0.9
    assert recall(knn(points, 15, index="IVF128,Flat;recall=0.97"), exact) > 0.95  # as many cells as it takes


def test_a_graph_index_and_lists_that_are_too_short():
    points = cloud(2000, 16)
    assert (knn(points, 5, index="HNSW32").ids == knn(points, 5).ids).float().mean() > 0.9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FAISS asks for more points to place its cells
        assert torch.isfinite(knn(points[:200], 190, index="IVF4,Flat;nprobe=1").sqdist).all()  # what is missing is searched again
