"""What `import evenstride` brings in, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import evenstride as es


def run(code, *options):
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


HEAVY = ["torch", "pyarrow", "matplotlib", "rich", "typer", "pandas", "scipy", "lightning"]


def test_import_brings_in_no_heavy_module():
    run(
        "import sys, evenstride\n"
        f"loaded = set({HEAVY}) & set(sys.modules)\n"
        "assert not loaded, loaded"
    )


def test_planning_saving_and_statistics_need_no_torch(tmp_path):
    run(
        "import sys\n"
        "sys.modules['torch'] = None\n"  # Makes `import torch` an ImportError.
        "import evenstride as es\n"
        "plan = es.plan_epoch([3, 9, 4, 8], token_budget=18, buckets=[6], num_replicas=2)\n"
        "es.optimal_edges([3, 9, 4, 8], 2, token_budget=18)\n"
        f"path = {str(tmp_path / 'epoch.plan')!r}\n"
        "plan.save(path)\n"
        "assert repr(es.EpochPlan.load(path).stats()) == repr(plan.stats())\n"
        "plan.stats().table(), plan.stats().to_dict(), plan.step_info(0)\n"
    )


def test_import_takes_well_under_a_tenth_of_a_second_beyond_numpy():
    def own_seconds():
        lines = run("import evenstride", "-X", "importtime").stderr.splitlines()
        own = [line.split("|") for line in lines if line.startswith("import time:")]
        return (
            sum(
                int(fields[0].removeprefix("import time:"))
                for fields in own
                if fields[0].removeprefix("import time:").strip().isdigit()
                and fields[2].strip().startswith("evenstride")
            )
            / 1e6
        )

    assert 0 < min(own_seconds() for _ in range(3)) < 0.1


def test_the_sampler_comes_with_torch_on_first_use():
    run(
        "import sys, evenstride\n"
        "assert 'torch' not in sys.modules\n"
        "evenstride.BucketBatchSampler\n"
        "assert 'torch' in sys.modules\n"
    )


def test_submodules_come_on_first_use():
    run(
        "import sys, evenstride as es\n"
        "assert 'evenstride.cuda' not in sys.modules\n"
        "assert es.cuda.is_built() in (True, False)\n"
        "assert es.cuda is sys.modules['evenstride.cuda']\n"
    )


def test_every_public_name_is_there_and_listed():
    assert {"BucketBatchSampler", "EpochPlan", "optimal_edges", "plan_epoch"} <= set(es.__all__)
    for name in es.__all__:
        assert getattr(es, name) is not None
    assert set(es.__all__) <= set(dir(es))
    exec("from evenstride import *", {})  # noqa: S102


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Sampler'"):
        es.Sampler  # noqa: B018


def test_the_core_is_private_and_has_the_version_of_the_package():
    assert not hasattr(es, "core")
    assert es.__version__ == es._core.__version__
