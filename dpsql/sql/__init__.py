"""SQL in and out: `parse` reads text, `lower` makes it a plan or refuses, `compile` writes fresh SQL.

This package alone imports sqlglot; its trees never leave it.
"""
