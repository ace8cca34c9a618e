"""Boxes in the space of a table's partition columns, and what was spent on each."""
