"""Emit the engine's SQL from plans. It holds nothing of the analyst's text."""
