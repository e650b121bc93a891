"""What may be broken, how much of it, and for how long: pure definitions and rules."""
