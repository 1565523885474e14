"""The versions that tests with frameworks meet, here and on their ranks, are those of a list."""

from __future__ import annotations

import json
import os

from packaging.requirements import Requirement

from docs_support import ROOT
from framework_support import run_ranks
from framework_versions import versions_of

FRAMEWORKS = ["accelerate", "datasets", "lightning", "torchdata", "transformers"]
JOB = """
import json

from framework_versions import versions_of

print(json.dumps(versions_of({packages})))
"""


def wanted(name):
    """Return what a list in requirements/ asks for, by package."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    asked = [Requirement(line) for line in lines if line[0] not in "#-"]
    return {one.name: one.specifier for one in asked if not one.marker or one.marker.evaluate()}


def test_frameworks_are_of_the_versions_that_the_run_is_for(tmp_path):
    tested = wanted("test")
    frameworks = {name: tested[name] for name in FRAMEWORKS if name in tested}
    if os.environ.get("EVENSTRIDE_FRAMEWORKS") == "older":
        frameworks |= wanted("older")
    here = versions_of(frameworks)
    (on_rank,) = run_ranks(JOB.format(packages=list(frameworks)), tmp_path, num_ranks=1)
    assert json.loads(on_rank) == here
    for name, version in here.items():
        assert frameworks[name].contains(version), f"{name} is {version}"
