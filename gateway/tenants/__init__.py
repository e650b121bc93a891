"""Whose request it is, what that tenant may still use, and when its turn comes."""
