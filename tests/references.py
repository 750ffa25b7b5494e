"""Slow and obvious versions of what the package computes fast."""

import math

import torch


def densities_by_definition(points, pairs, path_points=1, support=None, bandwidth=5.0, exclude_ends=False):
    """Log densities [E, K]: every point on every line is built, its distances are sorted, the kernel is summed in float64."""
    points = points.double()
    t = torch.arange(1, path_points + 1, dtype=torch.float64)[:, None] / (path_points + 1)
    a, b = points[pairs].unsqueeze(2).unbind(1)
    sqdist = torch.cdist((1 - t) * a + t * b, points, compute_mode="donot_use_mm_for_euclid_dist").square()
    if exclude_ends:
        sqdist.scatter_(2, pairs[:, None].expand(-1, path_points, -1), math.inf)
    nearest = sqdist.sort(-1).values[..., :support]
    return (-nearest / bandwidth).logsumexp(-1) - nearest.isfinite().sum(-1).log()


def rounding(points, bandwidth):
    """How far a log density in float32 may be off: a squared distance is right to a few units in the last place of the largest norm."""
    return 1e-6 + 8 * 2**-24 * points.square().sum(1).max().item() / bandwidth
