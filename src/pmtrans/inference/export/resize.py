"""Pillow's resize inside a graph: two matrix products that give its result bit for bit.

Pillow resamples 8-bit images horizontally, rounds to 8 bits, then vertically, with coefficients in 22-bit fixed
point. In float64 these sums are exact, so no tolerance is needed; ``torch.nn.functional.interpolate`` rounds only
once, at the end, and differs by one grey level in some pixels.

Shapes: S output size, L input length.
"""

from __future__ import annotations

from collections.abc import Callable

import PIL
import torch
from torch import Tensor

from pmtrans.errors import ModelError

_FIXED_POINT = float(1 << 22)
TALL_IMAGES_VERTICALLY_FIRST = int(PIL.__version__.split(".")[0]) >= 13  # before, always horizontally first


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor) -> Tensor:
    a, x = -0.5, x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


_FILTERS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {"bilinear": (_triangle, 1.0), "bicubic": (_cubic, 2.0)}


def check_interpolation(name: str) -> None:
    """Raise if this filter is not implemented in the graph."""
    if name not in _FILTERS:
        raise ModelError(f"Interpolation {name!r} is not available in the graph: export without --with-preprocessing.")


def resampling_matrix(positions_L: Tensor, length: Tensor, size: int, interpolation: str) -> Tensor:
    """Pillow's coefficients (S, L) in float64, for positions 0 .. L-1; L may be dynamic."""
    kernel, reach = _FILTERS[interpolation]
    scale = length / size
    stretch = scale.clamp(min=1.0)  # antialiasing: the filter widens as the image shrinks
    centre_S = (torch.arange(size, dtype=torch.float64, device=positions_L.device) + 0.5) * scale
    first_S = (centre_S - reach * stretch + 0.5).floor().clamp(min=0.0)
    end_S = torch.minimum((centre_S + reach * stretch + 0.5).floor(), length)
    weights_SL = kernel((positions_L - centre_S[:, None] + 0.5) / stretch)
    inside_SL = (positions_L >= first_S[:, None]) & (positions_L < end_S[:, None])
    weights_SL = torch.where(inside_SL, weights_SL, torch.zeros_like(weights_SL))
    weights_SL = weights_SL / weights_SL.sum(1, keepdim=True)
    half = torch.where(weights_SL < 0, -0.5, 0.5)
    return (weights_SL * _FIXED_POINT + half).trunc() / _FIXED_POINT


def resize(images_BCHW: Tensor, size: int, interpolation: str) -> Tensor:
    """8-bit values (of any dtype) to (B, C, size, size), as integers in float64. Meant to be traced."""
    values = images_BCHW.double()
    rows, row_positions = _length_and_positions(values[0, 0, :, 0])
    columns, column_positions = _length_and_positions(values[0, 0, 0])
    vertical_SH = resampling_matrix(row_positions, rows, size, interpolation)
    horizontal_SW = resampling_matrix(column_positions, columns, size, interpolation)
    if not TALL_IMAGES_VERTICALLY_FIRST:
        return horizontally_first(values, vertical_SH, horizontal_SW)
    tall = (rows > size) & (rows - size > 2 * (columns - size))
    result: Tensor = torch.cond(tall, vertically_first, horizontally_first, (values, vertical_SH, horizontal_SW))
    return result


def horizontally_first(values: Tensor, vertical_SH: Tensor, horizontal_SW: Tensor) -> Tensor:
    """Both passes; their order matters, as the result is rounded in between."""
    return _rounded(vertical_SH @ _rounded(values @ horizontal_SW.T))


def vertically_first(values: Tensor, vertical_SH: Tensor, horizontal_SW: Tensor) -> Tensor:
    return _rounded(_rounded(vertical_SH @ values) @ horizontal_SW.T)


def _rounded(values: Tensor) -> Tensor:
    return (values + 0.5).floor().clamp(0, 255)


def _length_and_positions(line_L: Tensor) -> tuple[Tensor, Tensor]:
    """The length of an axis as a tensor of the graph, and the positions on it."""
    ones_L = torch.ones_like(line_L)
    return ones_L.sum(), ones_L.cumsum(0) - 1
