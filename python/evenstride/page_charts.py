"""Charts of pages: images and SVG, written without matplotlib, with labels that stay readable."""

from __future__ import annotations

import math
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from evenstride._tables import percent
from evenstride.pages import Markup, element, png_uri
from evenstride.picture_data import bucket_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from evenstride.picture_data import Strip

__all__ = ["Ramp", "bar", "count_ticks", "points_chart", "stacked_chart"]

# From light to dark at an even pace, so that it is read without telling hues apart.
_ANCHORS = ("f4d35e", "a6c866", "55b082", "2b8d94", "35668f", "443c7c")
_SWATCH = "display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.45em"
_MOST_COLOURS = 255
_MOST_IN_LEGEND = 12
_MOST_TICKS = 5
_SLACK = 1e-9


class Ramp:
    """A colour for each bucket, from light for the shortest to dark for the longest."""

    def __init__(self, num_buckets: int) -> None:
        self.num_buckets = num_buckets
        shades = min(num_buckets, _MOST_COLOURS)
        anchors = np.array([list(bytes.fromhex(anchor)) for anchor in _ANCHORS])
        at = np.linspace(0, len(anchors) - 1, shades) if shades > 1 else np.array([2.0])
        channels = [np.interp(at, np.arange(len(anchors)), channel) for channel in anchors.T]
        self._palette = np.stack(channels, axis=1).round().astype(np.uint8)
        buckets = np.arange(num_buckets)
        self._shades = (buckets * (shades - 1) // max(1, num_buckets - 1)).astype(np.uint8)

    def colour(self, bucket: int) -> str:
        """Return a bucket's colour, as #rrggbb."""
        return f"#{bytes(self._palette[self._shades[bucket]]).hex()}"

    def swatch(self, bucket: int, name: str) -> Markup:
        """Return a small square in a bucket's colour, and the name."""
        style = f"{_SWATCH};background:{self.colour(bucket)}"
        return element("span", element("span", class_="swatch", style=style), name)

    def image(self, strip: Strip, description: str, **attributes: str) -> Markup:
        """Return a strip of steps as an image, a point a step."""
        pixels = np.where(strip.image < 0, len(self._palette), self._shades[strip.image])
        uri = png_uri(_png(pixels.astype(np.uint8), self._palette))
        return element("img", src=uri, alt=description, **attributes)

    def legend(self, edges: list[int]) -> Markup:
        """Return which colour is which bucket: all of them, or some where they are many."""
        shown = range(self.num_buckets)
        if self.num_buckets > _MOST_IN_LEGEND:
            places = np.linspace(0, self.num_buckets - 1, _MOST_IN_LEGEND // 2)
            shown = [int(place) for place in places]  # type: ignore[assignment]
        items = [element("li", self.swatch(k, bucket_name(edges, k))) for k in shown]
        return element("ul", *items, class_="legend", aria_label="bucket: lengths in tokens")


def _png(pixels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Return an image of colours of a palette. The number after the last colour is no colour."""
    height, width = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels], axis=1)  # Unfiltered.
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", palette.tobytes() + bytes(3)),
            chunk(b"tRNS", b"\xff" * len(palette) + b"\0"),
            chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            chunk(b"IEND", b""),
        ]
    )


def bar(fraction: float) -> Markup:
    """Return a bar for a cell of a table, as long as a fraction of the cell."""
    piece = element("span", class_="bar", style=f"width:{100 * fraction:.2f}%")
    return element("span", piece if fraction > 0 else "", class_="bars", aria_hidden="true")


def stacked_chart(
    heights: NDArray[np.float64],
    bounds: NDArray[np.float64],
    ramp: Ramp,
    *,
    x_ticks: dict[float, str],
    y_ticks: dict[float, str],
    x_name: str,
    description: str,
) -> Markup:
    """Return rows of `heights`, shape (n_buckets, n_bins), on top of each other."""
    top = max(y_ticks)
    tops = heights.cumsum(axis=0)
    x = 100 * (bounds - bounds[0]) / (bounds[-1] - bounds[0])
    paths = [_columns(x, tops[k] / top, heights[k] / top) for k in range(len(heights))]
    shapes = [element("path", d=path, fill=ramp.colour(k)) for k, path in enumerate(paths) if path]
    return _plot(
        [_grid(at / top for at in y_ticks), *shapes],
        {100 * (at - bounds[0]) / (bounds[-1] - bounds[0]): t for at, t in x_ticks.items()},
        {at / top: text for at, text in y_ticks.items()},
        x_name=x_name,
        description=description,
    )


def _columns(
    x: NDArray[np.float64], tops: NDArray[np.float64], heights: NDArray[np.float64]
) -> str:
    """Return a path of a rectangle for each height above 0."""
    return "".join(
        f"M{x[i]:.2f} {100 - 100 * tops[i]:.2f}H{x[i + 1]:.2f}v{100 * heights[i]:.2f}H{x[i]:.2f}z"
        for i in np.flatnonzero(heights)
    )


def points_chart(
    values: dict[str, float], *, ends: Sequence[str], x_name: str, description: str
) -> Markup:
    """Return fractions at equal distances, by name, with a line through all but the `ends`."""
    bottom = min(0.9, math.floor(10 * min(values.values())) / 10)
    step = math.ceil((1 - bottom) / _MOST_TICKS * 20 - _SLACK) / 20
    y_ticks = {
        (1 - step * i - bottom) / (1 - bottom): f"{100 * (1 - step * i):.0f}%"
        for i in range(math.floor((1 - bottom) / step + _SLACK) + 1)
    }
    x = {name: 100 * (i + 0.5) / len(values) for i, name in enumerate(values)}
    y = {name: 100 * (1 - value) / (1 - bottom) for name, value in values.items()}
    traced = [f"{x[name]:.2f} {y[name]:.2f}" for name in values if name not in ends]
    dots = [
        element(
            "path",
            element("title", f"{name}: {percent(value)}"),
            d=f"M{x[name]:.2f} {y[name]:.2f}h0",
            class_="dot end" if name in ends else "dot",
        )
        for name, value in values.items()
    ]
    return _plot(
        [
            _grid(y_ticks),
            *([element("path", d="M" + "L".join(traced), class_="trace")] if traced else []),
            *dots,
        ],
        {x[name]: name for name in values},
        y_ticks,
        x_name=x_name,
        description=description,
        labels=[
            element("span", percent(v)[:-1], class_="at", style=f"left:{x[n]:.2f}%;top:{y[n]:.2f}%")
            for n, v in values.items()
        ],
    )


def count_ticks(most: float) -> dict[float, str]:
    """Return round numbers from 0 to at least `most`, and how they are written."""
    rough = max(1.0, most / (_MOST_TICKS - 1))
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (power * factor for factor in (1, 2, 2.5, 5, 10))
    step = next(step for step in steps if step >= rough and step == int(step))
    return {step * i: f"{step * i:,.0f}" for i in range(math.ceil(most / step) + 1)}


def _grid(y_ticks: Iterable[float]) -> Markup:
    """Return a line for each place in [0, 1], which is from the bottom to the top."""
    return element("path", d="".join(f"M0 {100 - 100 * y:.2f}H100" for y in y_ticks), class_="grid")


def _plot(
    shapes: Sequence[Markup],
    x_ticks: dict[float, str],
    y_ticks: dict[float, str],
    *,
    x_name: str,
    description: str,
    labels: Sequence[Markup] = (),
) -> Markup:
    """Return shapes in a square of 100 that stretches, and text around it that does not.

    The keys of `x_ticks` are in [0, 100] from the left, those of `y_ticks` in [0, 1] from the
    bottom.
    """
    drawing = element(
        "svg",
        *shapes,
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=description,
    )
    texts = [
        *(
            element("span", t, class_="y", style=f"bottom:{100 * y:.2f}%")
            for y, t in y_ticks.items()
        ),
        *(element("span", t, class_="x", style=f"left:{x:.2f}%") for x, t in x_ticks.items()),
        element("span", x_name, class_="name"),
        *labels,
    ]
    return element("div", drawing, element("div", *texts, aria_hidden="true"), class_="plot")
