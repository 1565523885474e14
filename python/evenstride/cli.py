"""The command `evenstride`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of the process, and exit. Needs ``evenstride[cli]``."""
    try:
        from evenstride.commands import run  # noqa: PLC0415 - typer and rich are an extra.
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"rich", "typer"}:
            raise
        sys.exit("evenstride: the command needs typer and rich; pip install 'evenstride[cli]'")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
