"""Write the document of the functions: `python -m dpsql.plan.functions > docs/reference/functions.md`."""

from __future__ import annotations

import sys

from dpsql.plan.functions.document import render_markdown

sys.stdout.write(render_markdown())
