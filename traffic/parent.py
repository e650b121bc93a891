"""End with the parent process, for processes that must not outlive a stack.

The kernel sends the chosen signal when the *thread* that started us ends, also if the process
lives on (a pool's worker thread, say). So the signal only makes us look: we end when our parent
has really changed.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
"""Source: prctl(2)."""


def die_with_parent(end: Callable[[], None]) -> None:
    """Call `end` once the parent process is gone. Linux only, main thread only.

    Raises:
        OSError: the kernel refused, or the system is not Linux.
    """
    if not sys.platform.startswith("linux"):
        raise OSError("--die-with-parent needs Linux")
    parent = os.getppid()

    def look(_signum: int, _frame: object) -> None:
        if os.getppid() != parent:
            end()

    signal.signal(signal.SIGUSR2, look)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have ended between our start and the call above.
    if parent == 1 or os.getppid() != parent:
        end()
