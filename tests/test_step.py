"""A step: every method and every setting, any precision, encoders of one's own, and states that continue to the bit."""

import math
from copy import deepcopy
from functools import cache

import pytest
import torch
from helpers import message
from torch import nn
from torch.nn.functional import one_hot

from pmlp.config import preset
from pmlp.data import draw_split, load
from pmlp.losses import contrastive_loss, relations
from pmlp.models import Network, build_encoder
from pmlp.pseudo_labels import PseudoLabels
from pmlp.step import Learner, batch_losses, build_network, build_optimizer, learning_rate, total_loss
from pmlp.views import Views

CPU = torch.device("cpu")
CONFIG = preset("digits").replace(mix_after=3, labeled_batch=16, unlabeled_batch=48).with_classes(10)
LOOSE = CONFIG.replace(threshold=0.12, similarity_threshold=0.1)  # so that early pseudo-labels count
DIGITS = load("digits")
SPLIT = draw_split(DIGITS.train_labels, 40, seed=0)


def train(config, steps, **settings):
    learner = Learner(config, Views(config, DIGITS, SPLIT, CPU), 10, **settings)
    return learner, [learner.step() for _ in range(steps)]


def weights(learner):
    return torch.cat([value.flatten().float() for value in learner.state_dict()["average"].values()])


@cache
def trained(config, steps):
    """The weights after some steps, found once."""
    return weights(train(config, steps)[0])


# The parts of a step


def test_a_constant_rate_is_constant():
    assert learning_rate(preset("cifar10").replace(schedule="constant"), 2**20) == 0.03
    assert learning_rate(preset("cifar10"), 2**20) == pytest.approx(0.03 * math.cos(7 * math.pi / 16), abs=1e-12)


def test_batch_norms_are_spared_from_decay_unless_wanted():
    network = Network(build_encoder(CONFIG, 1), (1, 8, 8), 10)
    decayed, free = (group["params"] for group in build_optimizer(network, CONFIG).param_groups)
    assert (len(free), len(decayed) + len(free)) == (8, len(list(network.parameters())))  # weight and bias of four batch norms
    assert len(build_optimizer(network, CONFIG.replace(batchnorm_decay=True)).param_groups[1]["params"]) == 0


def test_the_network_comes_from_the_seed_alone():
    views, state = Views(CONFIG, DIGITS, SPLIT, CPU), torch.get_rng_state()
    one, other = (build_network(CONFIG, views, 10).state_dict().values() for _ in range(2))
    assert all(torch.equal(first, second) for first, second in zip(one, other, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    last = build_network(CONFIG.replace(channels_last=True), views, 10)
    assert last.encoder.layers[3].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.fixture
def batch():
    """Labels, logits, features and pseudo-labels of two labelled and three unlabelled images."""
    generator = torch.Generator().manual_seed(0)
    logits, features = torch.randn(10, 4, generator=generator), nn.functional.normalize(torch.randn(10, 5, generator=generator))
    guesses = (3 * torch.randn(3, 4, generator=generator)).softmax(1)
    return torch.tensor([2, 0]), logits, features, PseudoLabels(guesses, torch.tensor([True, False, True]), guesses, None)


@pytest.mark.parametrize("form, threshold, others", [("paper", 0.7, [0, 1, 7, 8, 9]), ("authors", 0.8, [2, 3, 4, 5, 6])])
def test_the_contrastive_loss_takes_its_rows(batch, form, threshold, others):
    labels, _, features, pseudo = batch
    config = CONFIG.replace(contrastive_form=form, similarity_threshold=threshold)
    related = relations(torch.cat([one_hot(labels, 4).float(), pseudo.labels]), threshold)
    expected = contrastive_loss(features[[0, 1, 7, 8, 9]], features[others], related, form=form)
    torch.testing.assert_close(batch_losses(config, *batch).contrastive, expected, rtol=0, atol=1e-6)


def test_losses_are_zero_without_what_they_need(batch):
    labels, logits, features, pseudo = batch
    unsure = pseudo._replace(mask=torch.zeros(3).bool())
    authors = CONFIG.replace(contrastive_form="authors", similarity_threshold=0.8)
    assert [float(loss) for loss in batch_losses(authors, labels, logits, features, unsure)[1:]] == [0.0, 0.0]
    assert float(batch_losses(CONFIG, labels, logits, features, unsure).contrastive) != 0
    assert [float(loss) for loss in batch_losses(CONFIG, labels, logits[:4], features[:4], None)[1:]] == [0.0, 0.0]


def test_hard_labels(batch):
    _, logits, _, pseudo = batch
    logs, best = logits.log_softmax(1), pseudo.labels.argmax(1)
    found = batch_losses(CONFIG.replace(hard_labels=True), *batch).unsupervised
    torch.testing.assert_close(found, -(logs[7, best[0]] + logs[9, best[2]]) / 3, rtol=0, atol=1e-6)


def test_the_projector_stays_where_the_loss_does_not_depend_on_it():
    """Weight decay or not."""
    learner, _ = train(CONFIG, 0)
    images, projector = learner.views(0).images, list(learner.network.projector.parameters())
    before = [parameter.detach().clone() for parameter in projector]
    logits, features = learner.forward(images)
    learner.backward(logits.square().mean(), features, used=False)
    learner.update()
    assert all(torch.equal(old, new) for old, new in zip(before, projector, strict=True))
    logits, features = learner.forward(images)
    learner.backward(logits.square().mean() + features[:3].sum(), features, used=True)
    learner.update()
    assert not any(torch.equal(old, new) for old, new in zip(before, projector, strict=True))


def test_only_float16_scales_the_loss():
    assert train(CONFIG, 0)[0].scaler.state_dict() == {}
    assert set(train(CONFIG.replace(precision="float16"), 0)[0].scaler.state_dict()) > {"scale"}


# Whole steps


def test_the_first_step_by_hand():
    """Nesterov's first step is gradient + 0.9 gradient; the average moves by a hundredth."""
    learner, _ = train(CONFIG, 0)
    before = [parameter.detach().clone() for parameter in learner.network.parameters()]
    learner.step()
    decayed = set(learner.optimizer.param_groups[0]["params"])
    for old, new, mean in zip(before, learner.network.parameters(), learner.average.parameters(), strict=True):
        if new.grad is not None:
            gradient = new.grad + (5e-4 if new in decayed else 0.0) * old
            torch.testing.assert_close(new, old - 0.1 * 1.9 * gradient, rtol=0, atol=1e-6)
        torch.testing.assert_close(mean, 0.99 * old + 0.01 * new, rtol=0, atol=1e-6)


def test_warm_up_and_the_supervised_method_see_labelled_images_alone():
    warm = CONFIG.replace(supervised_warmup=2)
    assert [report.pseudo is None for report in train(warm, 3)[1]] == [True, True, False]
    supervised = preset("digits", method="supervised").replace(labeled_batch=16, unlabeled_batch=48).with_classes(10)
    assert torch.equal(trained(supervised, 2), trained(warm, 2))


@pytest.mark.parametrize("method", ["pmlp", "authors", "lassl", "fixmatch", "supervised"])
def test_every_method_has_its_losses(method):
    config = preset("digits", method=method).replace(mix_after=1, labeled_batch=16, unlabeled_batch=48, threshold=0.12).with_classes(10)
    reports = train(config, 3)[1]
    assert all(torch.isfinite(loss) for report in reports for loss in report.losses)
    last, propagates = reports[-1], method in ("pmlp", "authors", "lassl")
    assert (last.pseudo is not None and last.pseudo.propagated is not None) == propagates
    assert (float(last.losses.unsupervised) != 0) == (method != "supervised")
    assert (float(last.losses.contrastive) != 0) == propagates


def test_without_density_is_an_infinite_bandwidth():
    learner, reports = train(LOOSE.replace(method="lassl", density=None), 6)
    assert reports[-1].pseudo.propagated is not None
    assert torch.equal(weights(learner), trained(LOOSE.replace(bandwidth=math.inf), 6))
    assert not torch.equal(weights(learner), trained(LOOSE.replace(bandwidth=0.1), 6))


@pytest.mark.parametrize(
    "change",
    [
        dict(seed=1), dict(supervised_weight=0.5), dict(unsupervised_weight=0.5), dict(contrastive_weight=0.5), dict(contrastive_form="authors"),
        dict(contrastive_temperature=0.5), dict(similarity_threshold=0.7), dict(learning_rate=0.05), dict(momentum=0.5), dict(nesterov=False),
        dict(weight_decay=0.0), dict(batchnorm_decay=True), dict(schedule="constant"), dict(cosine_part=0.5), dict(ema_decay=0.9),
        dict(rampdown=True, rampdown_epoch=0, epoch_steps=2, steps=6), dict(hard_labels=True), dict(projector_size=8),
        dict(batchnorm_momentum=0.5), dict(small_width=8), dict(small_pooling="max"), dict(whitening=True), dict(first_stride=2),
        dict(leaky_slope=0.2), dict(weak_pad=2), dict(weak_flip=True), dict(weak_last_offset=False), dict(strong_view="randaugment"),
        dict(strong_probability=0.5), dict(strong_magnitude="full"), dict(cutout=0.25), dict(cutout_pixels=1), dict(labeled_view="strong"),
        dict(labeled_in_unlabeled=False), dict(encoder="wrn_28_2"),
    ],
    ids=lambda change: ",".join(f"{name}={value}" for name, value in change.items()),
)
def test_every_setting_reaches_the_training(change):
    one, other = trained(LOOSE, 4), weights(train(LOOSE.replace(**change), 4)[0])
    assert one.shape != other.shape or not torch.equal(one, other)


def test_random_layers_draw_from_the_seed_and_the_iteration():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 20), nn.BatchNorm1d(20))
    second = deepcopy(first)
    one, _ = train(CONFIG, 3, encoder=first)
    torch.rand(7)
    assert torch.equal(weights(one), weights(train(CONFIG, 3, encoder=second)[0]))


@pytest.mark.parametrize("change", [dict(), dict(precision="bfloat16"), dict(precision="float16"), dict(channels_last=True)], ids=str)
def test_a_stored_run_continues_to_the_bit(change):
    """Whatever the precision and the layout, which are close to plain float32 and not the same."""
    config = CONFIG.replace(**change)
    whole, reports = train(config, 6)
    half, _ = train(config, 3)
    rest, _ = train(config.replace(device="cpu"), 0)
    rest.load_state_dict(half.state_dict())
    torch.rand(3)
    for _ in range(3):
        rest.step()
    assert torch.equal(weights(rest), weights(whole)) and not torch.equal(weights(half), weights(whole))
    assert rest.scaler.state_dict() == whole.scaler.state_dict()
    if change:
        exact, expected = train(CONFIG, 6)
        assert abs(reports[0].losses.supervised - expected[0].losses.supervised) < 0.05
        assert not torch.equal(weights(whole), weights(exact))


def test_a_loss_that_is_not_finite_leaves_the_weights():
    broken, _ = train(CONFIG, 1)
    before = weights(broken)
    broken.network.classifier.weight.data[0, 0] = math.nan
    said = message(broken.step, error=FloatingPointError)
    assert "the loss of iteration 2 is not finite (supervised nan" in said
    assert torch.equal(weights(broken), before)
    losses = batch_losses(CONFIG, torch.tensor([0]), torch.tensor([[math.inf, 0.0]] * 2), torch.zeros(2, 3), None)
    assert "iteration 1 " in message(total_loss, CONFIG, losses, 0, error=FloatingPointError)


def test_an_encoder_of_ones_own():
    own, _ = train(CONFIG, 2, encoder=nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.ReLU()))
    assert own.network.classifier.in_features == 20
    with pytest.raises(ValueError, match=r"encoder cannot take images of shape \[1, 8, 8\]"):
        train(CONFIG, 1, encoder=nn.Conv2d(3, 4, 3))
