"""Plans as text: a canonical form for digests, and SQL-like words for people."""

from __future__ import annotations

import hashlib
from enum import Enum

from dpsql.plan.expressions import Function
from dpsql.plan.nodes import OuterQuery
from dpsql.plan.tags import FORMS, TaggedEnum

_VALUES: set[type] = set()


def compute_canonical_text(part: object) -> str:
    """Compute a text that is the same for equal plans, in this process and every other, and in every version of dpsql.

    Raises TypeError for what has no tag.
    """
    kind = type(part)
    if kind in _VALUES:
        return f"{kind.__name__}:{part!r}"
    if isinstance(part, Function):
        return part.name
    form = FORMS[kind]
    if form is not None:
        texts = [compute_canonical_text(getattr(part, name)) for name in form.names]
        return f"({form.tag} {' '.join([*texts, *form.encode_later_fields(part, compute_canonical_text)])})"
    if isinstance(part, (tuple, list)):
        return f"({' '.join(map(compute_canonical_text, part))})"
    if isinstance(part, TaggedEnum):
        return part.tag
    if isinstance(part, frozenset):
        return compute_canonical_text(sorted(part))
    if isinstance(part, Enum) or kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        raise TypeError(f"{kind.__name__} has no tag, so it cannot be in a fingerprint")
    _VALUES.add(kind)  # a value of Python's own, as all of its class are
    return f"{kind.__name__}:{part!r}"


def compute_digest(outer: OuterQuery) -> str:
    """Compute the SHA-256 of a plan, in hexadecimal."""
    return hashlib.sha256(compute_canonical_text(outer).encode()).hexdigest()
