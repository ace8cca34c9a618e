"""The code blocks of the documents, and how each kind of them is run.

A page runs from top to bottom in an empty directory that has the tutorial's database and policy. Its blocks are:

- `python`: executed, all in one namespace. `title="Not run: …"` says why a block is only compiled.
- `console`: lines that begin with `$ ` are commands. The lines below are what is printed, with any numbers, any width of
  columns, and `…` for any lines; without such lines, a command has to succeed. In a shell, lines behind its prompt are
  typed into it. Below `dpsql mcp`, the lines behind `> ` are the calls of an assistant, each a tool with its arguments in
  JSON, and the lines below are what it reads. `dpsql serve` runs until the page ends, on ports that are free; what the page writes as its ports are
  those. `psql` logs in with the password that `dpsql users add` showed. What is asked over HTTP has the last token.
- `yaml`: a policy. With a title it is that file; without, its keys are put into the page's `hie.yaml`.
- `sql`: statements, each asked once. A title names the dialect; a line `-- refused: CODE` before a statement says that it
  is refused.
- `sh`, `text`, `json`: shown, and not run. `r`: run by `tests/interfaces/server/test_r.py`.

A page that begins with `<!-- runs after PAGE -->` goes on where that one ends, in the same directory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

import dpsql
from dpsql.interfaces.cli import EXITS, main

_ERRORS = {1, *(code for _, code in EXITS)}

ROOT = Path(__file__).parents[2]
LANGUAGES = frozenset({"python", "console", "yaml", "sql", "sh", "text", "json", "r"})
DIALECTS = {
    "PostgreSQL": "postgres",
    "Spark": "spark",
    "Snowflake": "snowflake",
    "BigQuery": "bigquery",
    "T-SQL": "tsql",
}
_BLOCK = re.compile(r"(?ms)^```(\w+)(?: title=\"([^\"\n]*)\")?\n(.*?)^```$")
_FENCE = re.compile(r"(?m)^ *```")
_SHELL_INPUT = re.compile(r"^(?:dpsql\(.*?\)|\s*\.\.\.)> (.*)$")


@dataclass(frozen=True)
class Block:
    """One code block of a page: its language, its title, its text, and the line it begins at."""

    language: str
    title: str
    text: str
    line: int


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code, and all that it wrote."""

    code: int
    text: str


def pages() -> list[Path]:
    """The README, CONTRIBUTING, and every page below docs/."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    """A page's path below the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order. Raises AssertionError for a fence that is not understood."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(match[1], match[2] or "", match[3], text.count("\n", 0, match.start()) + 1)
        for match in _BLOCK.finditer(text)
    ]
    assert 2 * len(found) == len(_FENCE.findall(text)), f"{name(page)} has a fence that is not run"
    assert {block.language for block in found} <= LANGUAGES, name(page)
    return found


def dpsql_command(arguments: list[str], typed: str = "") -> Ran:
    """Runs `dpsql …` within this process."""
    written = io.StringIO()
    with (
        contextlib.redirect_stdout(written),
        contextlib.redirect_stderr(written),
        mock.patch("sys.stdin", io.StringIO(typed)),
    ):
        try:
            main(arguments)
        except SystemExit as ended:
            return Ran(int(ended.code or 0), written.getvalue())
    return Ran(0, written.getvalue())


def page_before(page: Path) -> Path | None:
    """The page after which this one runs; None for one that stands alone."""
    match = re.match(r"<!-- runs after (\S+) -->\n", page.read_text(encoding="utf-8"))
    return None if match is None else page.parent / match[1]


class Page:
    """Runs the blocks of one page in the present directory."""

    def __init__(self, page: Path) -> None:
        self.name = name(page)
        self.blocks = blocks(page)
        self.names: dict[str, Any] = {"__name__": "__main__"}
        before = page_before(page)
        self._before = None if before is None else Page(before)
        self._servers = Servers()

    def run(self) -> None:
        """Runs all blocks; an error names the page and the line."""
        with self._servers, mock.patch.dict(os.environ):
            self._run_blocks()

    def _run_blocks(self) -> None:
        if self._before is not None:
            self._before._servers = self._servers
            self._before._run_blocks()
        for block in self.blocks:
            try:
                getattr(self, f"_run_{block.language}")(block)
            except Exception as error:
                raise AssertionError(f"{self.name}, line {block.line}: {error}") from error

    def _run_python(self, block: Block) -> None:
        text = self._servers.with_ports(block.text)
        code = compile("\n" * block.line + text, self.name, "exec")
        if not block.title.startswith("Not run"):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, self.names)

    def _run_console(self, block: Block) -> None:
        for command, shown in _commands(block.text):
            program, *arguments = shlex.split(self._servers.with_ports(command))
            if program == "psql":
                self._compare(command, shown, self._servers.psql(arguments))
                continue
            assert program == "dpsql", command
            if arguments[0] == "serve" and "--check" not in arguments:
                self._compare(command, shown, self._servers.start(arguments))
                continue
            if arguments[0] == "mcp":
                self._compare(command, shown, call_tools(arguments[1:], shown))
                continue
            if arguments[0] == "serve":
                arguments += ["--port", "0", "--http-port", "0"]
            typed = [match[1] for line in shown if (match := _SHELL_INPUT.match(line))]
            ran = dpsql_command(arguments, "\n".join(typed) + "\n")
            self._servers.learn(arguments, ran.text)
            self._compare(command, [] if typed else shown, ran)

    def _compare(self, command: str, shown: list[str], ran: Ran | None) -> None:
        """What a command did with what the page shows of it; None is for one that is not here."""
        if ran is None:
            return
        refused = any(line.startswith(("error[", "ERROR:")) for line in shown) and not command.startswith(
            "dpsql mcp"
        )
        assert ran.code in (_ERRORS if refused else {0}), f"{command}\n{ran.text}"
        if shown:
            expected = re.escape(_plain("\n".join(shown))).replace("…", ".*")
            assert re.fullmatch(expected, _plain(ran.text), re.DOTALL), f"{command}\n{ran.text}"

    def _run_yaml(self, block: Block) -> None:
        policy = Path(block.title or "hie.yaml")
        if block.title:
            policy.write_text(block.text, encoding="utf-8")
        else:
            whole = merged(yaml.safe_load(policy.read_text(encoding="utf-8")), yaml.safe_load(block.text))
            policy.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
        # What a page has spent so far was of the policy before.
        for path in Path().glob(f"{policy.stem}.ledger*"):
            path.unlink()
        dpsql.connect(f"{policy.stem}.duckdb", policy=policy, ledger=":memory:").close()

    def _run_sql(self, block: Block) -> None:
        dialect = DIALECTS[block.title] if block.title else "duckdb"
        with dpsql.connect(
            "hie.duckdb", policy=_generous(Path("hie.yaml")), ledger=":memory:", dialect=dialect
        ) as con:
            for statement in block.text.split(";\n"):
                code = re.search(r"^-- refused: (\w+)$", statement, re.MULTILINE)
                try:
                    con.query(statement, **_loss(statement))
                    found = None
                except dpsql.QueryRejected as error:
                    found = error
                assert (found and found.code) == (code and code[1]), f"{statement}\n{found}"

    def _run_sh(self, block: Block) -> None: ...

    _run_text = _run_json = _run_r = _run_sh


class Servers:
    """The servers that a page starts, until it ends, and what it is told of users on the way."""

    def __init__(self) -> None:
        self._ports = {"5439": "5439", "8439": "8439"}
        self._passwords: dict[str, str] = {}
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.terminate()
            process.communicate(timeout=60)

    def with_ports(self, text: str) -> str:
        """A text in which the page's ports are those that its server has."""
        return re.sub(r"\b[58]439\b", lambda match: self._ports[match[0]], text)

    def learn(self, arguments: list[str], told: str) -> None:
        """Notes a password or a token that a command has shown."""
        if password := re.search(r"^password: (\S+)$", told, re.MULTILINE):
            self._passwords[arguments[2]] = password[1]
            os.environ.setdefault("PGPASSWORD", password[1])
        if token := re.search(r"^token: (\S+)$", told, re.MULTILINE):
            os.environ["DPSQL_TOKEN"] = token[1]

    def start(self, arguments: list[str]) -> Ran:
        """Starts `dpsql serve`, and returns when it listens, with what it has said."""
        process = subprocess.Popen(
            [sys.executable, "-m", "dpsql", *arguments, "--port", "0", "--http-port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self._running.append(process)
        said = ""
        for line in process.stdout or ():
            said += line
            for name, port in (("PostgreSQL", "5439"), ("HTTP", "8439")):
                if match := re.match(rf"{name}: listening on \S+?:(\d+)", line):
                    self._ports[port] = match[1]
            if line.startswith("Ctrl-C"):
                return Ran(0, said)
        return Ran(process.wait(60), said)

    def psql(self, arguments: list[str]) -> Ran | None:
        """Runs psql as the user that its address names; None where there is no psql, but in CI."""
        program = shutil.which("psql")
        if program is None and not os.environ.get("CI"):
            return None
        assert program is not None, "there is no psql"
        (user,) = re.findall(r"\buser=(\S+)", arguments[0])
        ran = subprocess.run(
            [program, "-X", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=60, env={**os.environ, "PGPASSWORD": self._passwords[user]},
        )  # fmt: skip
        return Ran(ran.returncode, ran.stdout)


def call_tools(arguments: list[str], shown: list[str]) -> Ran | None:
    """Makes the calls of an assistant, and returns them with their texts; None where the SDK is missing, but in CI."""
    if importlib.util.find_spec("mcp") is None and not os.environ.get("CI"):
        return None
    from interfaces.assistants import Assistant, over_streams, run

    async def make_calls(assistant: Assistant) -> str:
        said = list[str]()
        for line in (each for each in shown if each.startswith("> ")):
            tool, _, data = line.removeprefix("> ").partition(" ")
            said += [line, (await assistant.call(tool, **json.loads(data or "{}"))).text]
        return "\n".join(said)

    return Ran(0, run(over_streams(arguments), make_calls))


def merged(below: Any, above: Any) -> Any:
    """Two mappings put together, key by key; of anything else the second."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}
    return above


def _loss(statement: str) -> dict[str, Any]:
    """What a statement is asked for with, unless it says so itself."""
    return {} if "OPTIONS" in statement else {"epsilon": "0.1"}


def _generous(policy: Path) -> dict[str, Any]:
    """A policy with a budget for any number of statements."""
    whole = yaml.safe_load(policy.read_text(encoding="utf-8"))
    return merged(whole, {"budget": {"epsilon": 1000}, "max_epsilon": 10})  # type: ignore[no-any-return]


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console, each with the lines below it."""
    for part in re.split(r"(?m)^\$ ", text)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        while command.endswith("\\"):
            command = command[:-1] + shown.pop(0)
        yield command, shown


def _plain(text: str) -> str:
    """A text with one space between words and one sign for each number, as noise has any digits."""
    text = re.sub(r"─+|-{4,}", "─", text.strip())
    text = re.sub(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?", "#", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def study(directory: Path) -> None:
    """The tutorial's database and policy, made by the tutorial's own blocks."""
    tutorial = blocks(ROOT / "docs" / "tutorial.md")
    (made, *_) = (block for block in tutorial if block.language == "python")
    (policy,) = (block for block in tutorial if block.language == "yaml" and block.title == "hie.yaml")
    with contextlib.chdir(directory):
        exec(compile(made.text, "docs/tutorial.md", "exec"), {})
        Path("hie.yaml").write_text(policy.text, encoding="utf-8")


def copy(study: Path, directory: Path) -> None:
    """Puts the study's files into a directory."""
    for path in study.iterdir():
        shutil.copy(path, directory / path.name)
