"""Static analysis: facts about a plan that hold before any private data is read.

`intervals` and `nullability` derive facts of expressions, `domains`, `images` and `public_tables` the possible group keys,
`stability` the contribution bound of a privacy unit, and `partitions` which partitions of a table are read.
"""
