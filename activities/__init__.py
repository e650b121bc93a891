"""The only doors from workflows to the world: each class is given the ports it needs."""
