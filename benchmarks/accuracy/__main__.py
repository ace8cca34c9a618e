"""How close to the truth answers are, side by side: `python -m benchmarks.accuracy`.

Each system is asked the same questions of the same data for the same total ε and δ, over and over, and its
answers are compared with the exact one. How to read the tables, and what is equal about them:
benchmarks/README.md. They are printed as Markdown; what happens meanwhile goes to the standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import dpsql
from benchmarks.accuracy.asking import OURS, Asking, Said, ask
from benchmarks.accuracy.data import DELTA, Asked
from benchmarks.accuracy.environments import PEERS, kept
from benchmarks.accuracy.errors import errors
from benchmarks.accuracy.questions import QUESTIONS
from benchmarks.accuracy.table import Line, page, refusals


def main(arguments: Sequence[str] | None = None) -> None:
    """Asks, and prints the tables."""
    asking = _asking(arguments)
    questions, said = ask(asking)
    systems = [OURS, *(peer.name for peer in asking.peers)]
    for words in _head(asking):
        print(words)
    for words in page(_lines(questions, said, asking), OURS, systems):
        print(words)
    refused = [(one.system, one.question, one.epsilon, one.told) for one in said if isinstance(one.told, str)]
    for words in refusals(refused):
        print(words)


def _asking(arguments: Sequence[str] | None) -> Asking:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="0.1", help="scale factor of TPC-H")
    parser.add_argument("--runs", type=int, default=200, help="answers to each question at each ε")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0, 3.0], metavar="ε")
    parser.add_argument("--questions", nargs="+", metavar="WORDS", help="those whose name holds one of these")
    parser.add_argument("--peers", nargs="*", metavar="NAME", help="those peers, or none; otherwise all")
    parser.add_argument("--environments", type=Path, default=kept(), help="where peers are installed")
    parser.add_argument("--answers", type=Path, help="where answers are kept, so that a run can go on")
    options = parser.parse_args(arguments)
    words, names = options.questions or [""], options.peers
    unknown = set(names or ()) - {peer.name for peer in PEERS}
    if unknown:
        parser.error(f"peers are {', '.join(peer.name for peer in PEERS)}")
    return Asking(
        questions=[question for question in QUESTIONS if any(word in question.name for word in words)],
        epsilons=options.epsilons,
        runs=options.runs,
        scale=options.scale,
        peers=[peer for peer in PEERS if names is None or peer.name in names],
        environments=options.environments,
        answers=options.answers,
    )


def _lines(questions: Sequence[Asked], said: Sequence[Said], asking: Asking) -> list[Line]:
    found = {(one.system, one.question, one.epsilon): one.told for one in said}
    systems = [OURS, *(peer.name for peer in asking.peers)]
    return [
        Line(
            asked.question.name,
            output.name,
            epsilon,
            {
                system: None if isinstance(told, str) else errors(asked.truth, told, place)
                for system in systems
                for told in (found[system, asked.question.name, epsilon],)
            },
        )
        for epsilon in asking.epsilons
        for asked in questions
        for place, output in enumerate(asked.question.outputs)
    ]


def _head(asking: Asking) -> list[str]:
    peers = ", ".join(requirement for peer in asking.peers for requirement in peer.requirements[:1])
    units = "privacy unit: customer, unless it says order"
    return [
        f"TPC-H at scale factor {asking.scale} ({units}) and RAND HIE (privacy unit: person-year),",
        f"{asking.runs} answers each, δ = {DELTA:g}; dpsql {version('dpsql')}{f', {peers}' if peers else ''},",
        f"Python {sys.version.split()[0]}.\n",
    ]


if __name__ == "__main__":
    if not Path(dpsql.__file__).is_relative_to(Path(__file__).parents[2]):
        print(f"dpsql is taken from {dpsql.__file__}", file=sys.stderr)
    main()
