"""Propose bounds and values of columns for a policy from charged answers."""
