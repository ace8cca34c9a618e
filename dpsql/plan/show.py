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
    if isinstance(part, Function):
        return part.name
    if isinstance(part, Enum):
        return part.name
    if isinstance(part, (tuple, list)):
        return f"({' '.join(map(canonical, part))})"
    if isinstance(part, frozenset):
        return canonical(sorted(part))
    if dataclasses.is_dataclass(part):
        fields = [canonical(getattr(part, name)) for name in COMPARED[type(part)]]
        return f"({type(part).__name__} {' '.join(fields)})"
    return f"{type(part).__name__}:{part!r}"


def digest(post: Post) -> str:
    """The SHA-256 of a plan, in hexadecimal."""
    return hashlib.sha256(canonical(post).encode()).hexdigest()
