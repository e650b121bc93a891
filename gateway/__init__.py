"""The process in the request path: it splits, measures, breaks on purpose and forwards."""
