"""What Burnproof acts on: pure references, and one adapter a system."""
