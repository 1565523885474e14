"""Leaves out the examples of an integration where the package that it is for is not installed."""

from importlib.util import find_spec

collect_ignore = [
    f"python/evenstride/{package}.py"
    for package in ("accelerate", "lightning", "tensorboard", "transformers", "wandb")
    if find_spec(package) is None
]
