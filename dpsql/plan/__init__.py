"""The plan: what a query means, as frozen data.

`types` and `interval` are the two small algebras that everything else speaks, `expr` holds scalar
expressions, `nodes` the relational tree, `show` draws both for people.
"""
