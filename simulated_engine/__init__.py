"""An OpenAI-compatible engine without a model, for tests and small laptops."""
