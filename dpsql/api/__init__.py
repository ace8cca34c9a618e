"""Connections: open one, query, budgets, session tables; the same interface to a server over HTTP."""
