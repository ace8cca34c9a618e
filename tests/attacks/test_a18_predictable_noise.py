"""A18, predictable noise: no seed, no generator with a state, nothing that a fork or a pickle shares."""

from __future__ import annotations

import ast
import os
import pickle
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from attacks.naive import Naive
from worlds import person, world

import dpsql.privacy.mechanisms
from dpsql.privacy.mechanisms import (
    DiscreteGaussian,
    Entropy,
    Geometric,
    LInfinityMechanism,
    Mechanism,
    Staircase,
    SystemEntropy,
)
from tests.entropy import SeededEntropy

ROOT = Path(dpsql.privacy.mechanisms.__file__).parents[2]
ENTROPY = "privacy/mechanisms/entropy.py"
GENERATORS = {"random", "numpy.random", "secrets"}
AUTHENTICATION = {
    "backends/clickhouse/connection.py",
    "backends/clickhouse/session.py",
    "backends/spark/connection.py",
    "backends/spark/session.py",
    "interfaces/cli/check.py",
    "interfaces/cli/users.py",
    "interfaces/server/oversight.py",
    "interfaces/server/users.py",
    "interfaces/server/http/calls.py",
    "interfaces/server/http/oidc.py",
    "interfaces/server/http/access.py",
    "interfaces/server/listener.py",
    "interfaces/server/protocol/scram.py",
}
"""Files that draw salts, nonces, tokens, keys of sessions and names of stored answers or jobs, and no noise."""
POST_PROCESSING = {"privacy/synthesis/mst.py"}
"""Files that draw rows of what is released already; noise there is of `Entropy`, as everywhere."""
LAWS = {f"verification/{name}.py" for name in ("calls", "data_laws", "function_laws", "parser_laws")}
"""Files that draw the cases on which a version of an engine is tried; they see no private table."""
SYSTEM = {"urandom", "getrandom"}
MECHANISMS: list[Mechanism] = [
    Geometric(Fraction(2**31)),
    DiscreteGaussian(Fraction(2**62)),
    LInfinityMechanism(Fraction(2**31), 2),
    Staircase(Fraction(2), 2**31, 2**29),
]


def offences(tree: ast.AST, *, may_ask_the_system: bool) -> Iterator[str]:
    """What a module does that could make noise predictable: a generator, a seed to pass, a second source."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (f"import {name.name}" for name in names if name.name in GENERATORS)
            case ast.ImportFrom(module=module, names=names):
                full = {module or ""} | {f"{module}.{name.name}" for name in names}
                yield from (f"import {name}" for name in full & GENERATORS)
                asks = SYSTEM & {name.name for name in names}
                yield from (f"import {name}" for name in asks if not may_ask_the_system)
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                yield "numpy.random"
            case ast.Attribute(attr=str(name)) | ast.arg(arg=str(name)) | ast.keyword(arg=str(name)):
                if name == "seed" or name.endswith("_seed") or (name in SYSTEM and not may_ask_the_system):
                    yield f"the name {name}"
            case _:
                pass


def test_no_module_seeds_or_stores_a_generator() -> None:
    """No file under dpsql/ names a generator or a seed, and only one reads the system's entropy."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if here := list(offences(tree, may_ask_the_system=name == ENTROPY)):
            found[name] = here
    inventing = {name: found.pop(name) for name in POST_PROCESSING}
    assert all(set(names) == {"numpy.random"} for names in inventing.values())
    assert all(found.pop(name) == ["import random"] for name in LAWS)
    assert found == {name: ["import secrets"] for name in AUTHENTICATION}
    assert (ROOT / ENTROPY).exists()


def test_public_random_words_are_named_in_one_file() -> None:
    """Code that adds noise cannot reach the fixed stream that simulates intervals."""
    naming = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if re.search(r"_PublicWords|\bshake_", path.read_text(encoding="utf-8"))
    }
    assert naming == {"engine/intervals/simulation.py"}


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "import numpy.random as r",
        "from numpy import random",
        "from numpy.random import Generator",
        "import numpy as np\nx = np.random.normal()",
        "def draw(seed): ...",
        "draw(noise_seed=1)",
        "generator.seed(1)",
        "from os import urandom",
        "import os\nos.urandom(8)",
    ],
)
def test_scan_finds_every_route(source: str) -> None:
    """The scan would notice: each of these lines is an offence."""
    assert list(offences(ast.parse(source), may_ask_the_system=False))


def test_seeded_generator_is_reproduced() -> None:
    """The attack works on a program's own generator: its seed gives the noise away."""
    answers = [
        Naive(world(*map(person, range(people)))).number("SELECT COUNT(*) FROM people") for people in (7, 8)
    ]
    noise = Naive(world()).number("SELECT COUNT(*) FROM people")
    assert [round(answer - noise, 9) for answer in answers] == [7, 8]


def draw_in_child(mechanism: Mechanism, entropy: Entropy) -> bytes:
    """32 draws made in a forked child."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writer, repr(mechanism.draw(32, entropy)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(child, 0)
    return drawn


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_forked_children_draw_different_noise(mechanism: Mechanism) -> None:
    """Two children of one process draw different noise; with a seeded generator they would not."""
    entropy = SystemEntropy()
    mechanism.draw(8, entropy)
    first, second = (draw_in_child(mechanism, entropy) for _ in range(2))
    assert len(first) > 32
    assert first != second
    seeded = SeededEntropy(1)
    assert draw_in_child(mechanism, seeded) == draw_in_child(mechanism, seeded)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_copied_entropy_source_shares_no_state(mechanism: Mechanism) -> None:
    """The source has no state to pickle, takes no seed, and its copy draws other noise."""
    entropy = SystemEntropy()
    copy = pickle.loads(pickle.dumps(entropy))
    assert mechanism.draw(32, entropy) != mechanism.draw(32, copy)
    assert SystemEntropy.__slots__ == ()
    with pytest.raises(TypeError):
        SystemEntropy(1)  # type: ignore[call-arg]


def test_system_entropy_is_fresh_and_uniform() -> None:
    """Words do not repeat, and each of their 64 bits is set in half of them."""
    words = SystemEntropy().draw_words(20_000)
    assert words.shape == (20_000,)
    assert len(set(words.tolist())) == 20_000
    for bit in range(64):
        assert abs(int((words >> bit & 1).sum()) - 10_000) < 8 * 71
