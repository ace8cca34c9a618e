"""The release of a query: exact rows get their noise, and everything after it is post-processing of released values.

Only `exact_rows` opens exact rows.
"""
