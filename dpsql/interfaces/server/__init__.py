"""`dpsql serve`: an engine behind the PostgreSQL wire protocol and HTTP, for analysts without access to the data.

`protocol` is the wire protocol as a state machine without sockets; `users` stores users and tokens; `session` runs the statements
of a client: `utilities` those of the session, `session_queries` the others; `service` holds the state that all sessions share;
`listener` has the sockets of PostgreSQL's clients, and `http` is the other protocol.
"""
