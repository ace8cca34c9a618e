"""Queries of PostgreSQL's catalogue, which clients send to look around: told from others, and written for the twin."""
