"""The local stack: every process of Burnproof on one machine, under one supervisor."""
