"""The doors from workflows to the world: activities and the ports that they own."""
