"""Plans to the engine's SQL. Nothing of the analyst's text is in it."""
