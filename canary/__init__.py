"""The comparison of two arms: a pure, versioned judge."""
