"""Diagnosis, plan and guardrails of repair: pure."""
