"""Synthetic load: pure profiles and the driver that sends them."""
