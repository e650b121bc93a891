"""Who did what to which target, and on what evidence: the append-only record."""
