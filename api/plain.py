"""Text that somebody else chose, made safe to print. Loads nothing: every command may need it."""


def plain(text: str) -> str:
    """Return a text that somebody chose without what would move a terminal's cursor."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)
