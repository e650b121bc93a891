"""Durations as faults and experiments use them; the parser itself is shared with `slo`."""

from slo.durations import DOCUMENT, Seconds, format_duration, parse_duration

__all__ = ["DOCUMENT", "Seconds", "format_duration", "parse_duration"]
