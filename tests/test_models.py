"""Encoders, heads, whitening and the moving average: shapes, initial values, and torch's own way as reference."""

import pytest
import torch
from helpers import message
from torch import nn
from torch.nn.functional import conv2d, leaky_relu, unfold
from torch.testing import assert_close
from torchvision.models import resnet18

from pmlp.config import preset
from pmlp.models import Block, Network, Whitening, average_update, build_encoder, ema

CONFIG = preset("cifar10")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def shortcut_alone(*arguments, **options):
    """A block whose convolutions give nothing."""
    block = Block(*arguments, CONFIG, **options)
    nn.init.zeros_(block.second.weight)
    return block


def test_shortcut_of_a_block():
    images = torch.randn(2, 16, 8, 8)
    assert torch.equal(shortcut_alone(16, 16, 1)(images), images)
    wider = shortcut_alone(16, 32, 2)
    assert_close(wider(images), wider.shortcut(images))
    first = shortcut_alone(16, 32, 1, activated_shortcut=True)
    assert_close(first(images), first.shortcut(leaky_relu(first.first_norm(images), 0.1)))


def test_whitening():
    smooth = nn.functional.avg_pool2d(torch.randn(50, 3, 20, 20), 3, 1)
    whitening = Whitening(3)
    whitening.fit(smooth)
    patches = unfold(smooth, 3).transpose(1, 2).flatten(0, 1)
    covariance = (patches @ whitening.filters.flatten(1).T).T.cov()
    assert_close(covariance, torch.diag(covariance.diag()), atol=1e-3, rtol=0)
    values = torch.linalg.eigvalsh(patches.T.cov())
    assert_close(covariance.diag().sort().values, (values / (values + 0.01)).sort().values, atol=1e-3, rtol=0)
    found = whitening(smooth)
    assert found.shape == (50, 54, 18, 18) and found.min() >= 0
    assert_close(found[:, :27] - found[:, 27:], conv2d(smooth, whitening.filters, padding=1), atol=1e-5, rtol=0)
    assert not list(whitening.parameters()) and "filters" in whitening.state_dict()


@pytest.mark.parametrize("name", ["small", "wrn_28_2", "wrn_var_37_2"])
def test_size_of_the_features(name):
    encoder = build_encoder(CONFIG.replace(encoder=name), 3)
    assert encoder(torch.randn(2, 3, 32, 32)).shape == (2, encoder.features)


def test_digits_encoder():
    assert build_encoder(preset("digits"), 1)(torch.randn(2, 1, 8, 8)).shape == (2, 96)


def test_small_network_that_whitens():
    encoder = build_encoder(CONFIG.replace(encoder="small", whitening=True, first_stride=2), 3)
    images = torch.randn(2, 3, 32, 32)
    assert encoder(images).shape == (2, 64) and encoder.layers[0].in_channels == 54
    assert encoder.whitening(images).shape == (2, 54, 16, 16)


def test_small_network_with_maximum():
    encoder = build_encoder(CONFIG.replace(encoder="small", small_pooling="max"), 3)
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(encoder(images), encoder.layers(images).flatten(2).max(2).values)


def test_stages_of_a_wide_resnet():
    encoder = build_encoder(CONFIG.replace(encoder="wrn_28_2"), 3)
    stem = encoder.stem(torch.randn(2, 3, 32, 32))
    assert stem.shape == (2, 16, 32, 32) and encoder.blocks(stem).shape == (2, 128, 8, 8)
    assert [block.activated_shortcut for block in encoder.blocks] == [True] + 11 * [False]
    halved = build_encoder(CONFIG.replace(encoder="wrn_28_2", first_stride=2), 3)
    assert halved.blocks[0](stem).shape == (2, 32, 16, 16)


def test_initial_weights():
    """Kaiming's deviation with fan-in, in a layer with so many weights that the sample's is within 1%; the seed decides."""
    weights = build_encoder(CONFIG.replace(encoder="wrn_28_8"), 3).blocks[-1].second.weight
    assert weights.std().item() == pytest.approx((2 / (1 + 0.1**2) / (512 * 9)) ** 0.5, abs=2e-4)
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        found.append(build_encoder(preset("digits"), 1))
    assert all(torch.equal(one, other) for one, other in zip(*(encoder.parameters() for encoder in found)))


def test_heads():
    network = Network(build_encoder(preset("digits"), 1), (1, 8, 8), 10)
    logits, features = network(torch.randn(3, 1, 8, 8))
    assert logits.shape == (3, 10) and features.shape == (3, 64)
    assert_close(features.norm(dim=1), torch.ones(3))
    sizes = [[tuple(parameter.shape) for parameter in part.parameters()] for part in (network.classifier, network.projector)]
    assert sizes == [[(10, 96), (10,)], [(96, 96), (96,), (64, 96), (64,)]]


def test_finding_the_size_leaves_no_trace():
    encoder = resnet18()
    encoder.fc = nn.Identity()
    assert Network(encoder, (3, 32, 32), 10).classifier.in_features == 512
    assert encoder.training
    assert all(module.num_batches_tracked == 0 for module in encoder.modules() if isinstance(module, nn.BatchNorm2d))
    assert not Network(nn.Sequential(nn.Flatten(), nn.Linear(64, 20)).eval(), (1, 8, 8), 10).encoder.training


def test_encoders_that_are_refused():
    encoder = resnet18()
    assert "encoder cannot take images of shape [1, 8, 8]" in message(Network, encoder, (1, 8, 8), 10)
    assert encoder.training
    assert "not [2, 4, 6, 6]: end it with a pooling and a Flatten." in message(Network, nn.Conv2d(1, 4, 3), (1, 8, 8), 10)


def test_moving_average():
    """Half of the old and half of the new weights, batch norm as it is, and bit for bit as torch moves it."""
    network = Network(build_encoder(preset("digits"), 1), (1, 8, 8), 10)
    average, torchs = ema(network, 0.5), ema(network, 0.5)
    start = [parameter.clone() for parameter in network.parameters()]
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    network(torch.randn(8, 1, 8, 8))[0].logsumexp(1).mean().backward()
    optimizer.step()
    torchs.update_parameters(network)
    average_update(average, network)()
    for name, value in torchs.state_dict().items():
        assert torch.equal(value, average.state_dict()[name]), name
    for old, new, mean in zip(start, network.parameters(), average.parameters()):
        assert_close(mean, (old + new) / 2)
    for theirs, ours in zip(network.buffers(), average.module.buffers()):
        assert torch.equal(theirs, ours)
    assert not any(parameter.requires_grad for parameter in average.parameters())
