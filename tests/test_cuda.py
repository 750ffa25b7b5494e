"""A GPU gives what the CPU gives, on its own device."""

import pytest
import torch

from pmlp.augment import apply_strong, apply_weak, channel_statistics, draw_strong, draw_weak, normalize, view_generator
from pmlp.density import path_density
from pmlp.neighbors import knn
from pmlp.propagation import label_propagation
from pmlp.pseudo_labels import Buffer, buffered_propagation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def points():
    generator = torch.Generator().manual_seed(0)
    return torch.nn.functional.normalize(torch.randn(3000, 16, generator=generator))


def test_neighbors(points):
    expected, found = knn(points, 15), knn(points.cuda(), 15)
    assert found.ids.is_cuda
    torch.testing.assert_close(found.sqdist.cpu(), expected.sqdist)


@pytest.mark.parametrize("support", [None, 20, 512])
@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_density(points, support, kind):
    pairs = torch.randint(3000, (500, 2), generator=torch.Generator().manual_seed(1))
    settings = dict(support=support, kind=kind, path_points=3, log=True)
    found = path_density(points.cuda(), pairs.cuda(), **settings)
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), path_density(points, pairs, **settings), rtol=0, atol=1e-5)


@pytest.mark.parametrize("support", [None, 20])
def test_label_propagation(points, support):
    sources = torch.zeros(3000, 3)
    sources[torch.arange(30), torch.arange(30) % 3] = 1
    found = label_propagation(points.cuda(), sources.cuda(), support=support)
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), label_propagation(points, sources, support=support), rtol=0, atol=1e-4)


def test_buffer(points):
    labels = torch.nn.functional.one_hot(torch.arange(60) % 3, 3).float()
    results = []
    for device in ("cpu", "cuda"):
        buffer = Buffer()
        buffer.update(points[1000:1200].to(device), torch.eye(3, device=device)[torch.arange(200) % 3])
        draws = torch.Generator().manual_seed(2)
        moved = [tensor.to(device) for tensor in (points[:60], labels, points[60:500])]
        results.append(buffered_propagation(*moved, buffer, generator=draws).cpu())
    torch.testing.assert_close(*results, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["randaugment", "affine"])
@pytest.mark.parametrize("channels", [1, 3])
def test_views(kind, channels):
    images = torch.randint(0, 256, (448, channels, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    weak = draw_weak(448, 32, generator=view_generator(0, 0, 0))
    assert torch.equal(apply_weak(images.cuda(), weak).cpu(), apply_weak(images, weak))
    strong = draw_strong(448, 32, kind=kind, operations=1, generator=view_generator(0, 0, 1))
    limit = 1 if kind == "randaugment" else 3  # a level of the affine map, times 1.5 in the contrast, and its mean and rounding
    assert (apply_strong(images.cuda(), strong).cpu().int() - apply_strong(images, strong).int()).abs().max() <= limit
    statistics = channel_statistics(images.cuda())
    assert all(torch.equal(found, expected) for found, expected in zip(statistics, channel_statistics(images)))
    torch.testing.assert_close(normalize(images.cuda(), *statistics).cpu(), normalize(images, *statistics))
