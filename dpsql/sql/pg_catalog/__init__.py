"""Queries of PostgreSQL's catalogue, which clients send to list tables: recognized, and rewritten for the twin."""
