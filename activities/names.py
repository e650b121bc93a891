"""Names that a run and whoever cleans up after it must agree on."""


def lease_of(run_id: str) -> str:
    """Return the id of the run's one lease: known even when no answer ever told of it."""
    return f"{run_id}.lease"
