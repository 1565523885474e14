"""A browser for tests. Where there is none they are skipped, but fail in continuous integration."""

from __future__ import annotations

import io
import os
import shutil
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome")


def _find_browser():
    named = os.environ.get("EVENSTRIDE_CHROMIUM")
    path = named or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = f"None of {', '.join(NAMES)} is installed, and EVENSTRIDE_CHROMIUM is not set."
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


@contextmanager
def started_browser():
    """Start a browser without a window; it ends with the block."""
    if not os.environ.get("CI"):
        pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - Where it is.

    path = _find_browser()
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page as a browser shows it, and everything that it complained of or asked for."""

    def __init__(self, browser, path, *, width, scheme):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.faults = []
        self.requests = []
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def pixels(self, selector=None, number=0):
        """Return a picture of the whole page or of an element, shape (height, width, 3)."""
        if selector is None:
            png = self.page.screenshot(full_page=True)
        else:
            png = self.page.locator(selector).nth(number).screenshot()
        return pixels_of(png)


def pixels_of(png):
    """Return the pixels of a picture, shape (height, width, 3)."""
    with Image.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB"))


def colours_of(pixels):
    """Return how many pixels have which colour, as #rrggbb."""
    packed = pixels.astype(np.int64) @ [65536, 256, 1]
    values, counts = np.unique(packed, return_counts=True)
    return {f"#{value:06x}": int(n) for value, n in zip(values, counts, strict=True)}
