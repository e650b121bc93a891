"""Durable workflows: they sequence, hold and undo; they decide nothing and touch nothing."""
