"""What a saved position must agree with."""

from __future__ import annotations

import json
from typing import Any

STATE_VERSION = 1


def check_state(state: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise ValueError, with the field and both values, if the two are not of the same epochs."""
    for name in expected:
        if name not in state:
            msg = f"`state` must have the field {name!r}, but has only {sorted(state)}."
            raise ValueError(msg)
    found = dict(state)
    wanted = dict(expected)
    for fields in (found, wanted):
        fields.update(json.loads(fields.pop("options")))
    order = ["version", "lengths", "num_replicas"]
    names = order + sorted((wanted.keys() | found.keys()) - {*order, "epoch", "step"})
    for name in names:
        if found.get(name) != wanted.get(name):
            msg = (
                f"`{name}` must be the same as when the state was saved, but was "
                f"{found.get(name)!r} there and is {wanted.get(name)!r} here."
            )
            raise ValueError(msg)
