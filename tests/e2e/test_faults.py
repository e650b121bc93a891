"""Every fault of the catalogue on the real engine: seen, withdrawn, gone, nothing left.

After the examples, by its name, so that no latency is compared while faults are proven.
"""

import re
import sys

import httpx
import pytest

from faults.catalog import CATALOG
from tests.e2e.conftest import RealStack

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

VERIFY_SECONDS = 300.0
"""Forty seconds on a quiet machine."""


def verified(real: RealStack) -> str:
    """Run `burnproof faults verify --all` once for all tests; return what it printed."""
    if not real.verified:
        done = real.burnproof("faults", "verify", "--all", seconds=VERIFY_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        real.verified = done.stdout
    return real.verified


def test_every_fault_is_proven_on_the_real_engine_and_nothing_is_left(
    real: RealStack, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = verified(real)
    with capsys.disabled():  # the table is for who reads the log, also when all is well
        sys.stdout.write(f"\n{printed}")
    assert "SIMULATED" not in printed
    proven = re.findall(r"^ *(\S+) .* proven +proven +", printed, re.MULTILINE)
    assert set(proven) == set(CATALOG)
    assert printed.rstrip().endswith("33 cases: 0 verdicts unproven, 0 cases not here")
    token = real.state.admin_token_file.read_text("utf-8").strip()
    with httpx.Client(trust_env=False, timeout=30) as http:
        address = f"{real.state.gateway_url}/_burnproof"
        headers = {"authorization": f"Bearer {token}"}
        leases = http.get(f"{address}/leases?open=true", headers=headers).json()["leases"]
        routes = http.get(f"{address}/routes", headers=headers).json()["routes"]
    assert leases == []
    assert {route["name"] for route in routes} == {"chat", "embeddings"}


def test_a_search_finds_less_under_constant_embeddings(real: RealStack) -> None:
    """A13 on the real engine: what a search by its vectors finds, with and without the fault."""
    found = re.search(r"accuracy@5 ([0-9.]+) → accuracy@5 ([0-9.]+)", verified(real))
    assert found
    without, under = map(float, found.groups())
    assert under == 5 / 40
    assert without > 2 * under
