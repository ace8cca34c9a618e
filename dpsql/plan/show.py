"""Plans as text: a canonical form for digests, and SQL-like words for people."""

from __future__ import annotations

import dataclasses
import hashlib
from enum import Enum

from dpsql.plan.expr import Function
from dpsql.plan.nodes import Post
from dpsql.plan.parts import COMPARED


def canonical(part: object) -> str:
    """A text that is the same for equal plans, in this process and every other."""
    kind = type(part)
    if isinstance(part, Function):
        return part.name
    names = COMPARED[kind]
    if names or dataclasses.is_dataclass(kind):
        return f"({kind.__name__} {' '.join([canonical(getattr(part, name)) for name in names])})"
    if isinstance(part, (tuple, list)):
        return f"({' '.join(map(canonical, part))})"
    if isinstance(part, Enum):
        return part.name
    if isinstance(part, frozenset):
        return canonical(sorted(part))
    return f"{kind.__name__}:{part!r}"


def digest(post: Post) -> str:
    """The SHA-256 of a plan, in hexadecimal."""
    return hashlib.sha256(canonical(post).encode()).hexdigest()
