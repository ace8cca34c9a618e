"""The SQL above the release boundary, which reads released values alone."""

from __future__ import annotations

from dpsql.plan.nodes import Post
from dpsql.sql.scalar_text import identifier, write

RELEASED = "released"
ORDINAL = "#"


def emit_post(post: Post) -> str:
    """The SQL that runs on the released table alone: outputs, then the ordinal of the released row."""
    outputs = [f"{write(output.expr)} AS o{index}" for index, output in enumerate(post.outputs)]
    lines = [f"SELECT {', '.join([*outputs, identifier(ORDINAL)])}", f"FROM {RELEASED}"]
    if post.having is not None:
        lines.append(f"WHERE {write(post.having)}")
    order = [
        f"{write(item.expr)} {'DESC' if item.descending else 'ASC'} NULLS {'FIRST' if item.nulls_first else 'LAST'}"
        for item in post.order
    ]
    lines.append(f"ORDER BY {', '.join([*order, identifier(ORDINAL)])}")
    if post.limit is not None:
        lines.append(f"LIMIT {post.limit}")
    if post.offset:
        lines.append(f"OFFSET {post.offset}")
    return "\n".join(lines)
