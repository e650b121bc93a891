"""Measures of what a model wrote: pure."""
