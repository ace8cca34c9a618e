"""The plan: what a query means, as frozen data.

`types` and `interval` are the two algebras that all other modules use. `expressions` has the scalar expressions, `tables` and
`nodes` the relational operators, `steps` the parts of a statement in order, `text` the texts of a plan: one that names it in a
ledger, and SQL for people.
"""
