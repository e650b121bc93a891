"""The commands of `burnproof`, one file a theme; each registers itself on the app."""
