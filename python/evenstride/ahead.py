"""The plan of the next epoch, made in the background while a pass is running."""

from __future__ import annotations

import atexit
import time
import weakref
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenstride import _core
    from evenstride.plan import PlanArrays

FEWEST_SAMPLES = 100_000
"""With fewer, a plan is made in about a millisecond, and not ahead."""

_LOOKS = 4
_LOOK_S = (0.001, 0.05)


class Ahead:
    """The arrays of one epoch, which a thread of lowest priority makes."""

    may_begin: ClassVar[bool] = True  # Until the interpreter ends.

    def __init__(self, epoch: int, work: _core.PlanAhead) -> None:
        self.epoch = epoch
        self._work = work
        _running.add(self)

    def arrays(
        self, seconds_anew: float, tell: Callable[[float], None] | None = None
    ) -> PlanArrays | None:
        """Return the arrays, once, or raise what making them raised.

        None if this thread makes them sooner, in about `seconds_anew`: on a busy machine a thread
        of lowest priority may hardly come on, and a process cannot raise it again. None also where
        they have been taken or stopped, and in a process that was forked meanwhile.
        """
        try:
            began_s, before = time.monotonic(), self._work.fraction
            look = min(max(seconds_anew / _LOOKS, _LOOK_S[0]), _LOOK_S[1])
            while not self._work.wait(look):
                fraction = self._work.fraction
                seconds = time.monotonic() - began_s
                if (1.0 - fraction) * seconds > (fraction - before) * seconds_anew:
                    self._work.ask_to_stop()  # Nor does it come to its end soon.
                    return None
                if tell is not None:
                    tell(fraction)
            return self._work.take()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the thread, and free what it has made."""
        self._work.stop()


_running: weakref.WeakSet[Ahead] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    Ahead.may_begin = False
    for ahead in list(_running):
        ahead.stop()
