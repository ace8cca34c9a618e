"""SQL in and out: `parse` reads text, `lower` makes it a plan or refuses, `emit` writes fresh SQL.

This package alone imports sqlglot; its trees never leave it.
"""
