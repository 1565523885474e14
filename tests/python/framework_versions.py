"""Which versions of packages are there to be imported, without importing them."""

from __future__ import annotations

from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path


def versions_of(packages):
    """Return the version of each package, and fail where its module lies in another folder."""
    versions = {}
    for package in packages:
        found = distribution(package)
        folder = Path(str(found.locate_file("")))
        module = Path(find_spec(package.replace("-", "_")).origin)
        assert module.parents[1].samefile(folder), f"{module} is not that of {folder}"
        versions[package] = found.version
    return versions
