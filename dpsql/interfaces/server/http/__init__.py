"""The HTTP API of `dpsql serve`: queries, prices and budgets as JSON or Arrow.

`door` has the sockets, `access` authenticates callers, `requests` parses requests, `api` answers them, `statuses` maps errors to
HTTP statuses, `answers` keeps the latest answers for intervals at other confidences, `metrics` counts requests, and `openapi`
describes the API. Starlette and uvicorn belong to the extra `server`, and are imported only here.
"""
