"""What was released before: how it is named, kept and read back, so that nothing is charged for twice."""

from __future__ import annotations
