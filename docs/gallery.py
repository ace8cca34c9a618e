"""Make docs/reference/mechanisms.md and its pictures: each mechanism of the library with its law and 2,000 samples.

`python docs/generate.py` writes them. The samples come from a fixed stream, so that the pictures are the same each time. It is not a
source of noise, and the package does not use it.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.mechanisms import (
    LIBRARY,
    CubeMechanism,
    DiscreteGaussianMechanism,
    ExponentialMechanism,
    GaussianMechanism,
    GeometricMechanism,
    LaplaceMechanism,
    LibraryMechanism,
    LocalMechanism,
    PermuteAndFlipMechanism,
    RandomizedResponse,
    ReportNoisyMax,
    SelectionMechanism,
    StaircaseMechanism,
    UnaryEncoding,
    VectorMechanism,
    WishartMechanism,
)

PAGE = Path(__file__).parent / "reference" / "mechanisms.md"
PICTURES = PAGE.parent / "laws"
_WIDTH, _HEIGHT, _BASE = 480.0, 180.0, 150.0
_DRAWS = 2_000
_CELLS = 60
_SECTION = re.compile(r"\n\s*(Claim|Why|Source): ")

# The call of each mechanism on the page, and the range in which its law is drawn.
EXAMPLES: dict[type[Any], tuple[str, LibraryMechanism, float]] = {
    RandomizedResponse: (
        "RandomizedResponse(epsilon=1, choices=4)",
        RandomizedResponse(epsilon=1, choices=4),
        0,
    ),
    UnaryEncoding: ("UnaryEncoding(epsilon=1, choices=6)", UnaryEncoding(epsilon=1, choices=6), 0),
    LaplaceMechanism: ("LaplaceMechanism(epsilon=1, sensitivity=1)", LaplaceMechanism(epsilon=1), 6),
    GeometricMechanism: ("GeometricMechanism(epsilon=1, sensitivity=1)", GeometricMechanism(epsilon=1), 6),
    GaussianMechanism: (
        "GaussianMechanism(epsilon=1, delta=1e-6)",
        GaussianMechanism(epsilon=1, delta=1e-6),
        14,
    ),
    DiscreteGaussianMechanism: ("DiscreteGaussianMechanism(rho=0.1)", DiscreteGaussianMechanism(rho=0.1), 8),
    StaircaseMechanism: ("StaircaseMechanism(epsilon=2, sensitivity=1)", StaircaseMechanism(epsilon=2), 4),
    CubeMechanism: (
        "CubeMechanism(epsilon=1, sensitivity=1, dimensions=3)",
        CubeMechanism(epsilon=1, dimensions=3),
        9,
    ),
    VectorMechanism: (
        "VectorMechanism(epsilon=1, sensitivity=1, dimensions=3)",
        VectorMechanism(epsilon=1, dimensions=3),
        8,
    ),
    WishartMechanism: (
        'WishartMechanism(epsilon=1, delta=1e-3, calibration="profile")',
        WishartMechanism(epsilon=1, delta=1e-3, calibration="profile"),
        60,
    ),
    ExponentialMechanism: (
        "ExponentialMechanism(scores=[9, 8, 7, 5, 2, 0], epsilon=1)",
        ExponentialMechanism(scores=[9, 8, 7, 5, 2, 0], epsilon=1),
        0,
    ),
    PermuteAndFlipMechanism: (
        "PermuteAndFlipMechanism(scores=[9, 8, 7, 5, 2, 0], epsilon=1)",
        PermuteAndFlipMechanism(scores=[9, 8, 7, 5, 2, 0], epsilon=1),
        0,
    ),
    ReportNoisyMax: (
        "ReportNoisyMax(scores=[9, 8, 7, 5, 2, 0], epsilon=1)",
        ReportNoisyMax(scores=[9, 8, 7, 5, 2, 0], epsilon=1),
        0,
    ),
}


class PictureStream:
    """A stream of words from the hash of a counter: the same in each run, and for pictures only."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name.encode(), 0

    def draw_words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words."""
        blocks = [
            hashlib.sha256(self._name + (self._count + k).to_bytes(8, "big")).digest()
            for k in range(-(-count // 4))
        ]
        self._count += len(blocks)
        return np.frombuffer(b"".join(blocks), np.uint64)[:count]


@dataclass(frozen=True)
class Drawing:
    """The content of a picture: heights of the law and of the samples, at places along the axis."""

    places: list[float]
    law: list[float]
    sampled: list[float]
    labels: dict[float, str]
    in_bars: bool
    curve: tuple[tuple[float, float], ...] = ()


def drawing(mechanism: Any, reach: float) -> Drawing:
    """Return the drawing of a mechanism, with its law and its samples."""
    stream = PictureStream(mechanism.name)
    if isinstance(mechanism, SelectionMechanism):
        chances = mechanism.probabilities().tolist()
        counts = np.bincount(mechanism.sample(_DRAWS, entropy=stream), minlength=len(chances)) / _DRAWS
        labels = {float(place): f"score {score}" for place, score in enumerate(mechanism.scores)}
        return Drawing(
            [float(place) for place in range(len(chances))], chances, counts.tolist(), labels, in_bars=True
        )
    if isinstance(mechanism, LocalMechanism):
        chances = [mechanism.p] + [mechanism.q] * (mechanism.choices - 1)
        counts = mechanism.supports(mechanism.sample(_DRAWS, entropy=stream)).mean(axis=0)
        labels = {
            float(place): "the truth" if place == 0 else f"choice {place}"
            for place in range(mechanism.choices)
        }
        return Drawing(
            [float(place) for place in range(mechanism.choices)],
            chances,
            counts.tolist(),
            labels,
            in_bars=True,
        )
    drawn = mechanism.sample(_DRAWS, entropy=stream)
    values = drawn[:, 0, 0] if drawn.ndim == 3 else drawn.reshape(_DRAWS, -1)[:, 0]
    if getattr(mechanism, "spacing", None) == 1:
        places = np.arange(-reach, reach + 1)
        counts = np.array([(values == place).mean() for place in places])
        return Drawing(
            places.tolist(),
            mechanism.density(places).tolist(),
            counts.tolist(),
            {float(place): f"{place:g}" for place in places[:: max(1, len(places) // 8)]},
            in_bars=True,
        )
    low = 0.0 if isinstance(mechanism, WishartMechanism) else -reach
    edges = np.linspace(low, reach, _CELLS + 1)
    counts = np.histogram(values, edges)[0] / _DRAWS / (edges[1] - edges[0])
    middles = (edges[1:] + edges[:-1]) / 2
    labels = {float(place): f"{place:g}" for place in np.linspace(low, reach, 5)}
    points = np.linspace(low, reach, 481)
    curve = tuple(zip(points.tolist(), mechanism.density(points).tolist(), strict=True))
    law = mechanism.density(middles).tolist()
    return Drawing(middles.tolist(), law, counts.tolist(), labels, in_bars=False, curve=curve)


def picture(shown: Drawing, title: str) -> str:
    """Return the drawing as SVG: samples in gray, the law in blue."""
    gap = shown.places[1] - shown.places[0]
    left, right = shown.places[0] - gap / 2, shown.places[-1] + gap / 2
    most = max(*shown.law, *shown.sampled, *(height for _, height in shown.curve)) * 1.05

    def x(place: float) -> float:
        return 10 + (place - left) / (right - left) * (_WIDTH - 20)

    def y(height: float) -> float:
        return _BASE - height / most * (_BASE - 10)

    bar = (_WIDTH - 20) / len(shown.places) * (0.8 if shown.in_bars else 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" width="{_WIDTH:g}" font-family="sans-serif" font-size="11">',
        f"<title>{title}: the law in blue, {_DRAWS:,} samples in gray</title>",
        f'<rect width="{_WIDTH:g}" height="{_HEIGHT:g}" fill="white"/>',
    ]
    parts += [
        f'<rect x="{x(place) - bar / 2:.1f}" y="{y(height):.1f}" width="{bar:.1f}" height="{_BASE - y(height):.1f}" fill="#c8ccd4"/>'
        for place, height in zip(shown.places, shown.sampled, strict=True)
        if height > 0
    ]
    if shown.in_bars:
        parts += [
            f'<path d="M{x(place) - bar / 2:.1f} {y(height):.1f}h{bar:.1f}" stroke="#1f5fbf" stroke-width="2.5"/>'
            for place, height in zip(shown.places, shown.law, strict=True)
        ]
    else:
        line = " ".join(f"{x(p):.1f},{y(h):.1f}" for p, h in shown.curve)
        parts.append(f'<polyline points="{line}" fill="none" stroke="#1f5fbf" stroke-width="2"/>')
    parts.append(f'<path d="M10 {_BASE:g}H{_WIDTH - 10:g}" stroke="#555"/>')
    parts += [
        f'<text x="{x(place):.1f}" y="{_BASE + 18:g}" text-anchor="middle" fill="#333">{label}</text>'
        for place, label in shown.labels.items()
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def pictures() -> dict[Path, str]:
    """Return each picture of the page with its content."""
    return {
        PICTURES / f"{_stem(entry)}.svg": picture(drawing(EXAMPLES[entry][1], EXAMPLES[entry][2]), entry.name)
        for entry in LIBRARY
    }


def page() -> str:
    """Return the page: for each mechanism a picture, a call, its claim, its reason and its source."""
    lines = [
        "# Mechanisms",
        "This page is made from `dpsql.privacy.mechanisms.LIBRARY` by `python docs/generate.py`; a test holds that it is current.",
        "",
        _INTRODUCTION,
        "",
        "| mechanism | takes | is for | loss of a release |",
        "|---|---|---|---|",
    ]
    for entry in LIBRARY:
        typed, mechanism, _ = EXAMPLES[entry]
        parameters = ", ".join(f"`{name}`" for name in inspect.signature(entry).parameters)
        lines.append(
            f"| [{_title(entry)}](#{_anchor(entry)}) | {parameters} | {_FOR[entry]} | {_loss(mechanism)} |"
        )
    for entry in LIBRARY:
        typed, mechanism, _ = EXAMPLES[entry]
        first, sections = _parts(entry)
        lines += [
            "",
            f"## {_title(entry)}",
            "",
            f"`{typed}`",
            "",
            f"![{entry.name}](laws/{_stem(entry)}.svg)",
            "",
            first,
        ]
        for name, text in sections:
            lines += ["", f"**{name}.** {text[0].upper()}{text[1:]}"]
        low, high = mechanism.interval(0.95)
        lines += [
            "",
            f"Variance {mechanism.variance:.4g}; 95% of its errors lie between {low:.4g} and {high:.4g}.",
        ]
    return "\n".join(lines) + "\n"


_INTRODUCTION = """\
`dpsql.privacy.mechanisms` has the mechanisms of the literature, for use without SQL, policy or ledger. Each takes a loss and a sensitivity
as keyword arguments, and has

- `sample(size)`: independent draws, from the operating system's entropy;
- `release(…)`: a result that may be published: values with noise, the selected candidate, an answer. Each call is a release;
- `variance` and `interval(confidence)` of the error, the released value minus the true value;
- `profile()`: the least δ at each ε (`.delta(Decimal("0.5"))`), for `dpsql.privacy.accounting.measurement` and others;
- `event()`: the event that an accountant charges, for `dpsql.privacy.accounting.compare`.

```python
from decimal import Decimal
from fractions import Fraction

from dpsql.privacy.accounting import compare
from dpsql.privacy.mechanisms import GeometricMechanism, LaplaceMechanism

count = GeometricMechanism(epsilon=0.5)          # one unit changes a count by 1
print(count.release(1204), count.interval(0.95)) # the published count, and its error in 95% of releases
mean = LaplaceMechanism(epsilon=0.5, sensitivity=100 / 1204)  # values between 0 and 100, and a public number of units
print(mean.release(41.7), mean.profile().delta(Decimal("0.25")).high)
for charge in compare([count.event(), mean.event()], Fraction(1, 10**6)):
    print(charge.accountant, charge.epsilon)
```

You must prove the sensitivity, and account for all releases: for SQL, `dpsql` does both.

**Exactness.** Integer laws are exact. Laws on real numbers are drawn as exact integers on a lattice of
public steps, a millionth of the scale unless `step` is given. `release` rounds the value to the lattice exactly, and the noise
covers the increase of the sensitivity by rounding. So no bit of a float leaks (Mironov 2012). Pictures and `density` show the
continuous law. The Wishart mechanism alone is drawn in floats; it is for study, and has no `release`. The sensitivity is
that of the query in real numbers: a query that is itself computed in floats may change more.

Gray: 2,000 samples. Blue: the law; for vectors, that of one coordinate; for local answers, how often each choice is supported."""

_FOR: dict[type[Any], str] = {
    RandomizedResponse: "a question with k answers, asked of each person",
    UnaryEncoding: "a question with many answers",
    LaplaceMechanism: "real numbers, by the l1 norm",
    GeometricMechanism: "integers, by the l1 norm",
    GaussianMechanism: "real numbers, by the l2 norm",
    DiscreteGaussianMechanism: "integers, by the l2 norm",
    StaircaseMechanism: "one number, from ε = 1 on",
    CubeMechanism: "numbers that all move at once",
    VectorMechanism: "a vector, by the l2 norm, pure loss",
    WishartMechanism: "second moments, for study",
    ExponentialMechanism: "the best of a list",
    PermuteAndFlipMechanism: "the best of a list, pure loss",
    ReportNoisyMax: "the best of a list, by noisy scores",
}


def _loss(mechanism: LibraryMechanism) -> str:
    event = mechanism.event()
    words = {
        "Pure": "ε",
        "Gaussian": "ρ (zCDP)",
        "Approximate": "(ε, δ)",
        "BoundedRange": "ε, and ε²/8 (zCDP)",
    }
    return words[type(event).__name__]


def _title(entry: type[Any]) -> str:
    return f"{entry.name[0].upper()}{entry.name[1:]}"


def _anchor(entry: type[Any]) -> str:
    return re.sub(r"[^a-z0-9-]", "", entry.name.lower().replace(" ", "-"))


def _stem(entry: type[Any]) -> str:
    return _anchor(entry).replace("-", "_")


def _parts(entry: type[Any]) -> tuple[str, list[tuple[str, str]]]:
    """Return the first part of the docstring, and its sections, each on one line."""
    text = (inspect.getdoc(entry) or "").partition("\n>>> ")[0]
    first, *rest = _SECTION.split("\n" + text)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return _line(first), [(name, _line(said)) for name, said in pairs]


def _line(text: str) -> str:
    return re.sub(r"\|(?=[^|])", r"\\|", " ".join(text.split()))
