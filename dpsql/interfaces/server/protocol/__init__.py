"""The server side of the PostgreSQL wire protocol, version 3, without sockets: bytes in, tasks and bytes out.

Source: PostgreSQL 16 documentation, chapter 55, "Frontend/Backend Protocol".
"""
