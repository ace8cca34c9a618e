"""Queries of PostgreSQL's catalog, which clients send to list tables: recognized, and rewritten for the twin."""
