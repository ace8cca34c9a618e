"""All that can enter a fingerprint has a tag of its own, which never changes, and enters by it alone."""

from __future__ import annotations

import dataclasses
import gzip
import inspect
import json
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest

import dpsql.privacy.mechanisms
from dpsql.analysis.release_analysis import Analysis, Lattice
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Function, Scalar
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.nodes import OuterQuery
from dpsql.plan.text import compute_canonical_text, compute_equality_text
from dpsql.plan.types import FORMS, TaggedEnum, Type
from dpsql.planning.clamping import Clamp
from dpsql.planning.group_selection import OptimalPartitionSelection, Threshold, TopKSelection
from dpsql.planning.measurement import SynthesisPlan, VectorMeasurement
from dpsql.planning.quantiles import QuantileSelection
from dpsql.privacy.accounting import events
from dpsql.privacy.mechanisms import Mechanism

FOLDER = Path(__file__).parents[1] / "fixtures" / "ledger"
ENTERING = (
    OuterQuery,
    Analysis,
    VectorMeasurement,
    QuantileSelection,
    TopKSelection,
    SynthesisPlan,
    Clamp,
    Threshold,
    OptimalPartitionSelection,
    Lattice,
    events.Event,
)
"""What fingerprints are made of: `engine/replay/stored_release.py`, `engine/replay/reuse.py` and `plan/text.py`."""
FIELDS = {
    "AboveThreshold": 3,
    "Aggregation": 6,
    "Analysis": 5,
    "Answer": 3,
    "Approximate": 2,
    "Best": 6,
    "Block": 10,
    "Bound": 6,
    "BoundedRange": 1,
    "Call": 2,
    "Cell": 2,
    "Clamp": 14,
    "Column": 3,
    "Composed": 1,
    "Confined": 5,
    "Contribution": 6,
    "Cube": 2,
    "DiscreteGaussian": 1,
    "Elements": 4,
    "Exponential": 1,
    "Facts": 7,
    "Filter": 2,
    "Frame": 4,
    "Gaussian": 1,
    "Geometric": 1,
    "Grouped": 5,
    "Interval": 2,
    "Join": 6,
    "Key": 2,
    "KeySelection": 6,
    "KeyTosses": 4,
    "Lattice": 4,
    "Link": 4,
    "Literal": 2,
    "Matching": 4,
    "Measure": 9,
    "MeasuredBlock": 4,
    "Merged": 1,
    "Mst": 9,
    "Mwem": 9,
    "Order": 3,
    "Output": 2,
    "PartitionSelection": 2,
    "PermuteAndFlip": 1,
    "Post": 8,
    "Project": 6,
    "Projected": 2,
    "Pure": 1,
    "Ranked": 6,
    "Release": 6,
    "Released": 2,
    "Roll": 2,
    "Scalar": 2,
    "Scan": 7,
    "Selection": 1,
    "Sensitivity": 3,
    "SetOperation": 6,
    "RandomizedTable": 7,
    "SmallDatabase": 10,
    "Staircase": 3,
    "Synthesis": 2,
    "Top": 2,
    "Unit": 3,
    "Values": 3,
    "WeightsStream": 5,
    "Windowed": 7,
    "Windows": 5,
    "Within": 4,
}
"""The number of fields of each tag. After 0.3.0 no tag is renamed, used again, or given another number of fields."""
MEMBERS = {
    "Amount": "ROWS TOTAL GROUPS",
    "FrameKind": "ROWS RANGE GROUPS",
    "JoinKind": "INNER LEFT",
    "Moment": "ROWS UNITS COUNT TOTAL DISTINCT RANKED DISTINCT_TOTAL",
    "SetKind": "UNION_ALL UNION INTERSECT EXCEPT",
    "Type": "INTEGER DOUBLE VARCHAR DATE TIMESTAMP BOOLEAN TIME UUID BLOB LIST NULL",
    "UnitKind": "PUBLIC ROW COLUMN",
}


def parts(hint: Any) -> Iterator[type]:
    """The classes that a type hint speaks of."""
    if typing.get_origin(hint) is not None:
        for inner in typing.get_args(hint):
            yield from parts(inner)
    elif isinstance(hint, type):
        yield hint


def reachable() -> set[type]:
    """All classes of the package whose objects can enter, found by the types of fields."""
    found: set[type] = set()
    waiting = [kind for entering in ENTERING for kind in parts(entering)]
    while waiting:
        kind = waiting.pop()
        if kind in found or not kind.__module__.startswith("dpsql."):
            continue
        found.add(kind)
        if kind is Mechanism:
            waiting += [
                each
                for _, each in inspect.getmembers(dpsql.privacy.mechanisms, inspect.isclass)
                if Mechanism in each.__mro__
            ]
        if kind is Scalar:
            waiting.append(OuterQuery)  # which it holds as anything, against a circle of imports
        if dataclasses.is_dataclass(kind) and kind is not Function:
            hints = typing.get_type_hints(kind)
            for item in dataclasses.fields(kind):
                if item.compare:
                    waiting += parts(hints[item.name])
    return found - {Mechanism, Function}


def test_class_tags_are_stable() -> None:
    """The tags are those of version 0.3.0, with as many fields; no two classes share one."""
    forms = [FORMS[kind] for kind in reachable() if dataclasses.is_dataclass(kind)]
    found = [(form.tag, len(form.names)) for form in forms if form is not None]
    assert len(dict(found)) == len(found) == len(forms)
    assert dict(found) == FIELDS


def test_member_tags_are_stable() -> None:
    """No two members of an enumeration share a tag."""
    found = {}
    for kind in reachable():
        if issubclass(kind, Enum):
            assert issubclass(kind, TaggedEnum), kind
            tags = [member.tag for member in kind]
            assert len(set(tags)) == len(tags)
            found[kind.__name__] = " ".join(tags)
    assert sorted(found.values()) == sorted(MEMBERS.values())


def test_only_dataclasses_and_enumerations_enter() -> None:
    """All reachable objects are dataclasses or enumerations."""
    assert all(dataclasses.is_dataclass(kind) or issubclass(kind, TaggedEnum) for kind in reachable())


def test_registered_names_are_stable() -> None:
    """Functions and aggregates enter by their names in the registries, and those of version 0.3.0 are all there."""
    now = {"functions": FUNCTIONS, "aggregates": AGGREGATES, "within": WITHIN, "over": OVER}
    before = json.loads(gzip.decompress((FOLDER / "names.json.gz").read_bytes()))
    assert {kind: set(names) - set(now[kind]) for kind, names in before.items()} == {
        kind: set() for kind in now
    }
    assert all(name == entry.name for kind in now.values() for name, entry in kind.items())


def test_untagged_object_is_refused() -> None:
    """A class, one that inherits a tag, an enumeration and any other object of the package are refused."""

    @dataclasses.dataclass(frozen=True)
    class Bare:
        number: int

    @dataclasses.dataclass(frozen=True)
    class Tagged:
        tag: ClassVar[str] = "Bare"
        number: int

    @dataclasses.dataclass(frozen=True)
    class Heir(Tagged):
        pass

    class Side(Enum):
        LEFT = "left"

    assert compute_canonical_text(Tagged(1)) == compute_equality_text(Tagged(1)) == "(Bare int:1)"
    for part in (Bare(1), Heir(1), Side.LEFT, FORMS, (Bare(1),)):
        for text in (compute_canonical_text, compute_equality_text):
            with pytest.raises(TypeError, match="has no tag"):
                text(part)


def test_names_do_not_enter() -> None:
    """Classes, fields and members may be renamed."""

    @dataclasses.dataclass(frozen=True)
    class Before:
        tag: ClassVar[str] = "Row"
        kind: Type
        left: tuple[int, ...]

    class Kind(TaggedEnum):
        WHOLE = "int64", "INTEGER"

    @dataclasses.dataclass(frozen=True)
    class After:
        tag: ClassVar[str] = "Row"
        what: Kind
        sides: tuple[int, ...]

    assert compute_canonical_text(Before(Type.INTEGER, (1, 2))) == compute_canonical_text(
        After(Kind.WHOLE, (1, 2))
    )
    assert compute_equality_text(Before(Type.INTEGER, (1, 2))) == compute_equality_text(
        After(Kind.WHOLE, (1, 2))
    )
