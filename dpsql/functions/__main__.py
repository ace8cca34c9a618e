"""Write the document of the functions: `python -m dpsql.functions > docs/reference/functions.md`."""

from __future__ import annotations

import sys

from dpsql.functions.document import render_markdown

sys.stdout.write(render_markdown())
