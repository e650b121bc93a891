"""Make readable workflow ids and run ids. They are names, never locks: the hold is the lock."""

import re

SWEEP_WORKFLOW = "burnproof-lease-sweep"
SWEEP_SCHEDULE = "burnproof-lease-sweep"


def slug(name: str) -> str:
    """Return `name` in lower case with everything but letters, digits and dashes made a dash."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48] or "unnamed"


def run_id(name: str, temporal_run_id: str) -> str:
    """Return the id people use for one run: its name and eight digits of Temporal's run id."""
    return f"{slug(name)}-{temporal_run_id.replace('-', '')[-8:]}"


def experiment(name: str, suffix: str) -> str:
    """Return the workflow id of an experiment."""
    return f"experiment/{slug(name)}/{suffix}"


def remediation(root_run_id: str) -> str:
    """Return the workflow id of the remediation under a root run."""
    return f"remediation/{root_run_id}"
