"""The way of a query: parse, lower, analyze, choose, verify, charge, run, release, post-process.

Read `stages` first: it has the nine stages in order, with what each may read. `query_run` has the run that grows from stage to
stage, `engine` the policy, database and ledger that the stages get. Each other module serves one stage, or drives the stages for
another purpose: replays, targets of accuracy, explanations, forecasts, reservations, synthetic tables and streams.
"""
