"""The HTTP API of `dpsql serve`: the questions, prices and budgets of the other door, as JSON or Arrow.

`door` has the sockets, `access` says who asks, `requests` reads what is asked, `api` answers it, `statuses` says what an
error is in HTTP, `answers` keeps the latest answers for intervals at other confidences, `metrics` counts, `openapi` is the
description for programs. Starlette and uvicorn are in the extra `server`, and are imported here alone.
"""
