"""Views of images of any size and colour: as torchvision's, without leaving the images' device."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import _apply_op

from pmlp.augment import Strong, apply_strong, apply_weak, channel_statistics, draw_strong, draw_weak, normalize, view_generator
from pmlp.augment import NAMES, OPERATIONS, matrices_of


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
