"""Answers, budgets and errors as JSON: what the HTTP API writes, and a remote connection reads back."""
