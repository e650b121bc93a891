"""Diagnosis and plan of repair: pure."""
