"""How people and machines reach Burnproof: the command line and the typed client."""
