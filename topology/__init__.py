"""Where the time of requests goes, which way they took, and which prompts begin the same. Pure."""
