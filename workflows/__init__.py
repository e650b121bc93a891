"""The durable part: what happens in which order, and what is undone at the end."""
