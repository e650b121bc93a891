"""Where the command starts: Ctrl-C ends it quietly even while it still loads its libraries."""

import os
import signal
from typing import NoReturn

EXIT_STOPPED = 2


def main() -> NoReturn:
    """Load the command and run it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not one that is ignored
        signal.signal(signal.SIGINT, _leave)
    from api import cli

    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


def _leave(_number: int, _frame: object) -> None:
    os._exit(EXIT_STOPPED)
