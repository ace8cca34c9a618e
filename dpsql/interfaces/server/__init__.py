"""`dpsql serve`: an engine behind the PostgreSQL wire protocol and HTTP, for analysts without access to the data.

`protocol` is the wire protocol as a state machine without sockets, `listener` has the sockets of its clients, `session` runs a
client's statements, and `settings` has those that the session answers itself. `http` is the other protocol. Both share `service`,
the state of all sessions, `limits`, `users`, `statement_runs` and `oversight`; `serving` starts and stops everything.
"""
