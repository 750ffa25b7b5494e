"""Views of images of any size and colour: as torchvision's, without leaving the images' device."""

import math

import pytest
import torch
from helpers import message
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.functional import normalize as torchvision_normalize

from pmlp.augment import Strong, apply_strong, apply_weak, channel_statistics, draw_strong, draw_weak, normalize, view_generator
from pmlp.augment import NAMES, OPERATIONS, matrices_of, warp


def torchvision_one(image, name, value):
    if name == "Solarize" and value > 255:  # refused there, inverts nothing
        return image
    value = value - 1 if name in ("Brightness", "Color", "Contrast", "Sharpness") else value
    return _apply_op(image, name, value, InterpolationMode.BILINEAR, None)


@given(
    name=st.sampled_from(NAMES[:-1]),
    shares=st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4),
    channels=st.sampled_from([1, 3]),
    height=st.integers(2, 40),
    width=st.integers(2, 40),
    seed=st.integers(0, 1000),
    flat=st.booleans(),
)
def test_operations_are_those_of_torchvision(name, shares, channels, height, width, seed, flat):
    """Noise, where a neighbouring pixel may be 255 grey levels away, and nearly flat images."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (4, channels, height, width), dtype=torch.uint8, generator=generator)
    images = images // 100 + 50 if flat else images
    low, high, full, signed = OPERATIONS[name]
    values = torch.tensor([low + (max(high, full) - low) * abs(share) for share in shares])
    if signed:
        values = values * torch.tensor([1.0 if share > 0 else -1.0 for share in shares])
    if name == "Posterize":
        values = values.clamp(max=8).floor()
    if name.startswith("Translate"):
        values = (values * (width if name == "TranslateX" else height)).trunc()
    drawn = torch.full((4, 1), NAMES.index(name))
    draws = Strong(drawn, values[:, None], matrices_of(drawn, values[:, None], (height, width)), torch.zeros(4, 4).long())
    expected = torch.stack([torchvision_one(image, name, value) for image, value in zip(images, values.tolist())])
    assert (apply_strong(images, draws).int() - expected.int()).abs().max() <= 1


@pytest.mark.parametrize("kind", ["randaugment", "affine"])
@pytest.mark.parametrize("channels", [1, 3])
def test_views_stay_on_the_device_of_the_images(kind, channels):
    """The meta device has no values: reading one, or mixing devices, would fail."""
    images = torch.empty(64, channels, 32, 32, dtype=torch.uint8, device="meta")
    weak = apply_weak(images, draw_weak(64, 32, generator=view_generator(0, 0, 0)))
    strong = apply_strong(weak, draw_strong(64, 32, kind=kind, generator=view_generator(0, 0, 1)))
    floats = normalize(strong, torch.full((channels,), 0.5), torch.full((channels,), 0.5))
    for view, dtype in ((weak, torch.uint8), (strong, torch.uint8), (floats, torch.float32)):
        assert view.device.type == "meta" and view.dtype == dtype and view.shape == images.shape


@given(st.integers(1, 70), st.integers(1, 50), st.sampled_from(["randaugment", "affine"]), st.integers(0, 100))
def test_parts_of_a_batch(count, side, kind, seed):
    """Two processes that apply their halves of the draws make what one process makes."""
    images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    weak = draw_weak(count, side, pad=min(4, side - 1), generator=view_generator(seed, 0, 0))
    strong = draw_strong(count, side, kind=kind, generator=view_generator(seed, 0, 1))
    whole = apply_strong(apply_weak(images, weak), strong)
    halves = [
        apply_strong(apply_weak(images[rows], type(weak)(*(part[rows] for part in weak))), type(strong)(*(part[rows] for part in strong)))
        for rows in (slice(0, count // 2), slice(count // 2, None))
    ]
    assert torch.equal(torch.cat(halves), whole)


def test_statistics_of_many_images():
    """More images than one part of the sum, and a channel of one grey level."""
    images = torch.randint(0, 256, (5000, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images[:, 1] = 77
    mean, std = channel_statistics(images)
    torch.testing.assert_close(mean.double(), (images.double() / 255).mean((0, 2, 3)), rtol=0, atol=1e-7)
    torch.testing.assert_close(std.double(), (images.double() / 255).std((0, 2, 3), correction=0), rtol=0, atol=1e-7)
    assert std[1] < 1e-7
    with pytest.raises(ValueError, match="std"):
        normalize(images, mean, torch.tensor([0.1, 0.0, 0.1]))


def noise(count, channels=3, height=32, width=32):
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))


def generator(stream=0):
    return view_generator(0, 0, stream)


def test_draws_of_weak_views():
    many = draw_weak(20_000, 32, pad=2, generator=generator())
    assert many.shifts.unique().tolist() == [-2, -1, 0, 1, 2]
    assert (many.shifts[:, 0].add(2).bincount() / 20_000 - 0.2).abs().max() < 5 * math.sqrt(0.2 * 0.8 / 20_000)
    assert abs(many.flips.float().mean() - 0.5) < 5 * 0.5 / math.sqrt(20_000)
    assert draw_weak(5000, 32, pad=2, last_offset=False, generator=generator()).shifts.unique().tolist() == [-2, -1, 0, 1]
    assert not draw_weak(100, 8, flip=False, generator=generator()).flips.any()


def test_draws_of_strong_views():
    """Operations equally often, magnitudes over their ranges and in both directions, boxes cut off at the border."""
    many = draw_strong(28_000, 32, generator=generator())
    shares = many.operations.flatten().bincount(minlength=len(NAMES)) / 56_000
    assert shares[-1] == 0 and (shares[:-1] - 1 / 14).abs().max() < 5 * math.sqrt(1 / 14 / 56_000)
    for place, name in enumerate(NAMES[:-1]):
        values, (low, high, _, signed) = many.values[many.operations == place], OPERATIONS[name]
        scale = 32 if name.startswith("Translate") else 1
        assert values.abs().min() >= low * scale and values.abs().max() <= high * scale, name
        if signed:
            assert abs((values < 0).float().mean() - (values > 0).float().mean()) < 0.1, name
            assert abs(values.mean()) < 0.05 * high * scale, name
    assert many.values[many.operations == NAMES.index("Posterize")].floor().unique().tolist() == [4, 5, 6, 7, 8]
    heights, widths = many.boxes[:, 1] - many.boxes[:, 0], many.boxes[:, 3] - many.boxes[:, 2]
    assert heights.max() == widths.max() == 16 and heights.min() == widths.min() == 8  # a centre in the first pixel leaves half
    assert (many.boxes.min(), many.boxes.max()) == (0, 32)


def test_draws_as_the_authors_draw():
    many = draw_strong(28_000, 32, probability=0.5, magnitude="full", cutout_pixels=10, generator=generator())
    assert abs((many.operations == NAMES.index("Identity")).float().mean() - (0.5 + 0.5 / 14)) < 5 * 0.5 / math.sqrt(56_000)
    assert many.values[many.operations == NAMES.index("TranslateX")].abs().unique().tolist() == [10]
    assert (many.boxes[:, 1] - many.boxes[:, 0]).max() == 10


@pytest.mark.parametrize("options", [dict(operations=0), dict(kind="affine", probability=0.0)])
def test_strong_views_that_do_nothing(options):
    images = noise(12)
    draws = draw_strong(12, 32, cutout=0.0, generator=generator(), **options)
    assert torch.equal(draws.boxes[:, 0], draws.boxes[:, 1])
    assert torch.equal(apply_strong(images, draws), images)


@pytest.mark.parametrize("kind", ["randaugment", "affine"])
def test_no_images(kind):
    """A process may have no image of a batch."""
    images = torch.empty(0, 1, 8, 8, dtype=torch.uint8)
    assert apply_strong(images, draw_strong(0, 8, kind=kind, generator=generator())).shape == (0, 1, 8, 8)


@pytest.mark.parametrize("options, words", [
    (dict(kind="light"), "kind='light'"), (dict(magnitude="half"), "magnitude='half'"), (dict(cutout=2.0), "cutout=2.0"),
    (dict(size=0), "size=0"), (dict(operations=-1), "operations=-1"), (dict(probability=1.5), "probability=1.5"),
])
def test_strong_views_that_are_refused(options, words):
    assert words in message(draw_strong, 3, **{"size": 32, **options}, generator=generator())


def test_weak_views_that_are_refused():
    assert "pad=8" in message(draw_weak, 3, 8, pad=8, generator=generator())
    assert "images must be [5, C, H, W]" in message(apply_weak, noise(3), draw_weak(5, 32, generator=generator()))


def test_identity_matrix_changes_nothing():
    images = noise(12)
    assert torch.equal(warp(images, torch.eye(2, 3).repeat(12, 1, 1)), images)


def test_normalizing():
    images = noise(12)
    mean, std = channel_statistics(images)
    expected = torchvision_normalize(images.float() / 255, mean.tolist(), std.tolist())
    torch.testing.assert_close(normalize(images, mean, std), expected, rtol=0, atol=1e-5)
    grey = noise(4, 1, 8, 8)
    assert normalize(grey, *channel_statistics(grey)).shape == grey.shape
