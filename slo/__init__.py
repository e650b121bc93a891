"""Objectives, burn rates and verdicts: pure."""
