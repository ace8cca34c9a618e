"""The plan: what a query means, as frozen data.

`types` and `interval` are the two algebras that all other modules use. `expr` has the scalar expressions, `tables` and
`nodes` the relational operators, `tags` and `fingerprint` the text that names a plan in a ledger, `render` SQL for people.
"""
