"""Files that are compared with what the code says now; BURNPROOF_GOLDEN_WRITE=1 writes them."""

import os
from pathlib import Path

SNAPSHOTS = Path(__file__).parent / "snapshots"
WRITE = os.environ.get("BURNPROOF_GOLDEN_WRITE") == "1"


def stored(name: str, text: str) -> str:
    """Return the snapshot's text; write it first when asked to.

    Raises:
        AssertionError: there is no such snapshot.
    """
    path = SNAPSHOTS / name
    if WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no snapshot {name}: `make golden` writes it; review the diff"
    return path.read_text()
