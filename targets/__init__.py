"""What we act on: adapters, one file a system, and the pure names of targets."""
