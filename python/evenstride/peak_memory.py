"""How much memory a process takes at most while it does something."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["PeakMemory"]

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class PeakMemory:
    """Measures by how many bytes the resident memory of this process grows, at its peak.

    Used as a context; `extra` is there afterwards. It asks Linux, and is None where that cannot be.
    Memory that the process had been given before, and had not given back, is not counted.

    Examples
    --------
    >>> with PeakMemory() as peak:
    ...     _ = bytearray(2**20)
    >>> peak.extra is None or peak.extra >= 0
    True

    """

    extra: int | None = None

    def __enter__(self) -> Self:
        """Begin: the peak from now on is what counts."""
        try:
            _RESET.write_text(_RESET_PEAK)
        except OSError:
            self._before = None
        else:
            self._before = _resident("VmRSS")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End: keep how high it went."""
        peak = None if self._before is None else _resident("VmHWM")
        if self._before is not None and peak is not None:
            self.extra = max(0, peak - self._before)


def _resident(name: str) -> int | None:
    found = re.search(rf"(?m)^{name}:\s+(\d+) kB", _STATUS.read_text(encoding="utf-8"))
    return None if found is None else 1024 * int(found[1])
