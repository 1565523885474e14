"""Where labels of marks go in a picture, so that they can be told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Label", "placed"]

_AROUND = ((1, 1), (0, 1), (1, 0), (-1, 1), (-1, 0), (1, -1), (0, -1), (-1, -1))
_GAPS = (1.0, 8.0, 16.0, 26.0)
_HEIGHT = 7.0
_DIGIT = 5.0


class Label(NamedTuple):
    """How far the middle of a label is from that of its mark, and whether it touches the mark."""

    x: float
    y: float
    is_near: bool


class _Box(NamedTuple):
    x: float
    y: float
    half_width: float
    half_height: float

    def overlaps(self, other: _Box) -> bool:
        return (
            abs(self.x - other.x) < self.half_width + other.half_width
            and abs(self.y - other.y) < self.half_height + other.half_height
        )


def placed(
    marks: Sequence[tuple[float, float]], halves: Sequence[float], texts: Sequence[str]
) -> list[Label]:
    """Return where each mark's label goes: as near as it covers no mark and no label before it.

    Parameters
    ----------
    marks : sequence of (float, float)
        The middles of all marks, in points.
    halves : sequence of float
        Half of the sizes of the marks, in points.
    texts : sequence of str
        What the labels of the first marks say, in digits of the font size "x-small".

    Examples
    --------
    >>> placed([(0, 0), (3, 0)], [3, 3], ["6", "12"])
    [Label(x=6.5, y=7.5, is_near=True), Label(x=9.0, y=0.0, is_near=True)]

    """
    taken = [_Box(x, y, half, half) for (x, y), half in zip(marks, halves, strict=True)]
    labels: list[Label] = []
    for (x, y), half, text in zip(marks, halves, texts, strict=False):
        half_width = len(text) * _DIGIT / 2
        choices = [*_choices(half, half_width)]
        boxes = [_Box(x + label.x, y + label.y, half_width, _HEIGHT / 2) for label in choices]
        free = (i for i, box in enumerate(boxes) if not any(map(box.overlaps, taken)))
        chosen = next(free, 0)
        taken.append(boxes[chosen])
        labels.append(choices[chosen])
    return labels


def _choices(half: float, half_width: float) -> Iterator[Label]:
    for gap in _GAPS:
        for right, up in _AROUND:
            x, y = half + half_width + gap, half + _HEIGHT / 2 + gap
            yield Label(right * x, up * y, is_near=gap == _GAPS[0])
