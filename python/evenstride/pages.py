"""Pages of HTML that need nothing beside them: no other file, no network, no script."""

from __future__ import annotations

import base64
import html
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Markup", "element", "figure", "page", "paragraphs", "png_uri", "table"]

_VOID = ("br", "img")  # They have neither content nor an end.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


class Markup(str):
    """HTML as it is: text of any other type is escaped before it comes to a page."""

    __slots__ = ()


def page(title: str, *body: Markup) -> str:
    """Return a whole page, in the style of all of the package's pages."""
    style = files("evenstride").joinpath("pages.css").read_text(encoding="utf-8")
    return _PAGE.format(title=html.escape(title), style=style, body="\n".join(body))


def element(tag: str, *content: str, **attributes: str) -> Markup:
    """Return an element. ``class_`` is the attribute class, ``aria_label`` is aria-label.

    Examples
    --------
    >>> element("p", "a < b ", element("b", "always"), class_="rule")
    '<p class="rule">a &lt; b <b>always</b></p>'

    """
    opening = tag + "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for name, value in attributes.items()
    )
    if tag in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{''.join(map(_escaped, content))}</{tag}>")


def paragraphs(texts: Iterable[str]) -> Markup:
    """Return a paragraph for each text."""
    return Markup("\n".join(element("p", text) for text in texts))


def figure(content: str, caption: str, **attributes: str) -> Markup:
    """Return something to look at, and below it what it shows."""
    return element("figure", content, element("figcaption", caption), **attributes)


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, left: int = 1
) -> Markup:
    """Return a table in a frame that scrolls sideways where the page is narrow.

    Parameters
    ----------
    header : sequence of str
        The names of the columns.
    rows : iterable of sequence of str
        The cells; the first of each row is its header. A row of one cell spans all columns.
    caption : str
        What the table shows; its accessible name, too.
    left : int, default 1
        How many columns are aligned to the left.

    """

    def side(column: int) -> dict[str, str]:
        return {"class_": "left"} if column < left else {}

    def line(cells: Sequence[str]) -> Markup:
        if len(cells) == 1:
            return element("tr", element("td", cells[0], colspan=str(len(header)), class_="left"))
        first, *rest = cells
        shown = [element("td", cell, **side(column)) for column, cell in enumerate(rest, 1)]
        return element("tr", element("th", first, scope="row", **side(0)), *shown)

    head = [element("th", name, scope="col", **side(column)) for column, name in enumerate(header)]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *map(line, rows)),
    )
    frame = {"class_": "scroll", "role": "region", "tabindex": "0", "aria_label": caption}
    return element("div", whole, **frame)


def png_uri(png: bytes) -> str:
    """Return an address of an image that holds the image itself."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(text)
