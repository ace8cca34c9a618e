"""Writes the pages of docs/reference, and the part of the grammar, that are made from the package: `python docs/generate.py`.

- functions.md from the registry of functions; policy.md from the models of a policy; cli.md from the commands;
- engines.md from what each engine's dialect has, from the laws and differences of versions, and from engine_versions.json, which
  `python -m tests.versions` writes;
- errors.md from the tree of errors, and from the places in the source that raise them;
- the table of aggregates in sql.md, by asking for each aggregate in each place where one may stand;
- the words for aggregates in grammars/query.lark;
- dpsql.1, the man page, from the commands, by manual.py;
- mechanisms.md, a gallery, with its pictures in laws/, by gallery.py.

A test holds that the pages are current.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import typer

import dpsql
from dpsql import errors
from dpsql.backends.clickhouse.dialect import UNSUPPORTED as CLICKHOUSE_UNSUPPORTED
from dpsql.backends.clickhouse.functions import SPELLINGS as CLICKHOUSE_FUNCTIONS
from dpsql.backends.duckdb.versions import DIFFERENCES as DUCKDB_DIFFERENCES
from dpsql.backends.function_spellings import CallSpelling, Spelling, TypeSpelling
from dpsql.backends.postgres.dialect import UNSUPPORTED as POSTGRES_UNSUPPORTED
from dpsql.backends.postgres.functions import SPELLINGS as POSTGRES_FUNCTIONS
from dpsql.backends.spark.dialect import UNSUPPORTED as SPARK_UNSUPPORTED
from dpsql.backends.spark.functions import SPELLINGS as SPARK_FUNCTIONS
from dpsql.interfaces.cli.app import app
from dpsql.interfaces.shell.commands import COMMANDS
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.functions.document import render_markdown
from dpsql.policy import build_json_schema
from dpsql.policy.engine_types import POLICY_TYPES, describe_unread_type
from dpsql.sql.lower.aggregates import AGGREGATE_CALLS, iterate_distinct_spellings
from dpsql.sql.parse.older_parser import DIFFERENCES as SQLGLOT_DIFFERENCES
from dpsql.verification.certificate import COMMAND, REVIEWED, VARIABLE, format_reviewed
from dpsql.verification.laws import LAWS

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
GRAMMAR = ROOT / "grammars" / "query.lark"
gallery = runpy.run_path(str(ROOT / "docs" / "gallery.py"))
manual = runpy.run_path(str(ROOT / "docs" / "manual.py"))
_MADE = "This page is made from {source} by `python docs/generate.py`; a test holds that it is current.\n"


# ---------------------------------------------------------------------------------------- policy


def policy() -> str:
    """Return the page of the policy: every key with its type, its default and its meaning."""
    schema = build_json_schema()
    models = schema["$defs"]
    lines = [
        "# Policy",
        _MADE.format(source="the models of `dpsql.policy`"),
        "A policy is a YAML file, a dict, or a `dpsql.policy.Policy`. An unknown key is an error. The",
        "[tutorial](../tutorial.md#1-the-owner-writes-a-policy) has a commented example; `dpsql init` writes a skeleton,",
        "and `dpsql check` compares a policy with a database. `grammars/policy.schema.json` is the same as a JSON schema,",
        "for editors.",
    ]
    for name, model in [("Policy", schema), *models.items()]:
        if "properties" in model:
            lines += [
                "",
                f"## {name}",
                "",
                *_described(model),
                "| key | type | default | says |",
                "|---|---|---|---|",
            ]
            required = model.get("required", [])
            for key, field in model["properties"].items():
                default = "required" if key in required else _code(field.get("default"))
                said = _cell(field.get("description", ""))
                lines.append(f"| `{key}` | {_cell(_type(field, models))} | {default} | {said} |")
    return "\n".join(lines) + "\n"


def _described(model: Mapping[str, Any]) -> list[str]:
    return [inspect.cleandoc(model["description"]), ""] if "description" in model else []


_WORDS = {"string": "text", "boolean": "`true` or `false`", "integer": "whole number"}


def _type(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """Return the type of a key in words that an owner knows."""
    match field:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return (
                f"[{name}](#{name.lower()})" if "properties" in models[name] else _type(models[name], models)
            )
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value}`"
        case {"anyOf": choices}:
            kinds = [_type(choice, models) for choice in choices if choice.get("type") != "null"]
            written = "number" in kinds and any("pattern" in choice for choice in choices)
            return " or ".join(dict.fromkeys(kind for kind in kinds if not (written and kind == "text")))
        case {"type": "array"}:
            return f"list of {_type(field.get('items', {}), models)}"
        case {"type": "object", "additionalProperties": dict(below)}:
            return f"name → {_type(below, models)}"
        case {"type": [*several]}:
            return " or ".join(_type({"type": kind}, models) for kind in several)
    return _WORDS.get(field.get("type", ""), str(field.get("type", "any")))


# ---------------------------------------------------------------------------------------- command line


def cli() -> str:
    """Return the page of the command line: every command with its arguments and options, and those of the shell."""
    lines = [
        "# Command line",
        _MADE.format(source="the commands of `dpsql.interfaces.cli`"),
        "The exit code is 0 after success, 1 after an error, which is printed on standard error with its stable code, 2",
        "for wrong options, 3 if a query is refused, 4 if a budget does not suffice, 5 if the engine failed, and",
        "130 after Ctrl-C.",
        "`dpsql COMMAND --help` prints the same.",
        *_commands(typer.main.get_command(app), "dpsql"),
        "",
        "## In the shell",
        "A statement ends with `;`. A command begins with a backslash and ends with its line. Queries sent by `\\g` and `\\i` are charged; all other commands are free.",
        "",
        "| command | also | does |",
        "|---|---|---|",
    ]
    for command in COMMANDS:
        also = ", ".join(f"`\\{name}`" for name in command.names[1:])
        lines.append(f"| {_code(command.usage)} | {also} | {_cell(command.help)} |")
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: str) -> Iterator[str]:
    for name, below in getattr(command, "commands", {}).items():
        full = f"{path} {name}"
        if hasattr(below, "commands"):
            yield from _commands(below, full)
            continue
        arguments = [part for part in below.params if part.param_type_name == "argument"]
        options = [part for part in below.params if part.param_type_name == "option" and part.name != "help"]
        usage = " ".join(
            [full, *(part.name.upper() for part in arguments), *(["[OPTIONS]"] if options else [])]
        )
        yield from ("", f"## {full}", "", inspect.cleandoc(below.help or ""), "", "```sh", usage, "```", "")
        yield from ("| argument or option | says |", "|---|---|")
        for part in (*arguments, *options):
            names = [part.name.upper()] if part in arguments else [*part.opts, *part.secondary_opts]
            said = " ".join(inspect.cleandoc(part.help or "").split())
            yield f"| {', '.join(f'`{each}`' for each in names)} | {_cell(said)} |"


# ---------------------------------------------------------------------------------------- errors


def error_tree() -> str:
    """Return the page of errors: the classes, when they are raised, and the stable codes of each."""
    drawn = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    lines = [
        "# Errors",
        _MADE.format(source="`dpsql/errors.py` and the places that raise errors"),
        "Every error is a `dpsql.Error` with `.code` (stable, for programs), `.message`, `.hint` (what to do instead) and",
        "`.position` (line and column in the query or the policy file). All are PEP 249 exceptions. An error depends on the",
        "query, the policy and public metadata alone, never on private values. An error before the charge costs",
        "nothing. A `BackendError`, a cancelled query, and arithmetic on released values that is out of range keep the charge.",
        "",
        "```text",
        inspect.cleandoc(drawn),
        "```",
    ]
    found = _raised()
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.Error):
            lines += ["", f"## {name}", "", inspect.cleandoc(kind.__doc__ or ""), ""]
            lines += [f"Its code is `{kind.code}`{', or one of these' if found.get(name) else ''}."]
            codes = found.get(name, {})
            if codes:
                lines += ["", "| code | for example |", "|---|---|"]
                lines += [
                    f"| `{code}` | {_cell(min(texts, key=_plainest))} |"
                    for code, texts in sorted(codes.items())
                ]
    return "\n".join(lines) + "\n"


def _plainest(text: str) -> tuple[bool, int, str]:
    return (not text, text.count("…"), text)


def _raised() -> dict[str, dict[str, set[str]]]:
    """Return the codes that the source gives to each class of error, with their messages."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    classes = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.Error)
    }
    for path in Path(dpsql.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in classes:
                (code,) = [keyword.value for keyword in node.keywords if keyword.arg == "code"] or [None]
                for text in _texts(code, constants):
                    found[called][text].add(_message(node.args[0]) if node.args else "")
                continue
            places = {"refuse": "QueryRejected", "problem_error": "PolicyError", "Problem": "PolicyError"}
            kind = next((places[word] for word in places if word in called), None)
            if kind is not None:
                for place, argument in enumerate(node.args[:-1]):
                    codes = [
                        text
                        for text in _texts(argument, constants)
                        if re.fullmatch(r"[a-z]+(_[a-z]+)*", text)
                    ]
                    if codes:
                        for code in codes:
                            found[kind][code].add(_message(node.args[place + 1]))
                        break
    return found


def _texts(node: ast.expr | None, constants: Mapping[str, Any]) -> Iterator[str]:
    """Return the constant texts that an expression may have as its value."""
    match node:
        case ast.IfExp():
            yield from _texts(node.body, constants)
            yield from _texts(node.orelse, constants)
        case ast.Name() if isinstance(constants.get(node.id), str):
            yield constants[node.id]
        case ast.Constant() if isinstance(node.value, str):
            yield node.value


def _message(node: ast.expr) -> str:
    """Return a message with … in place of its variable parts."""
    match node:
        case ast.Constant() if isinstance(node.value, str):
            return re.sub(r"\{\w+\}", "…", node.value)
        case ast.JoinedStr():
            return "".join(_message(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
        case _:
            return ""


# ---------------------------------------------------------------------------------------- aggregates

_PLACES: dict[str, Callable[[str], str]] = {
    "of units": lambda call: f"SELECT {_filled(call)} FROM visits",
    "by groups": lambda call: f"SELECT plan, {_filled(call)} FROM visits GROUP BY plan",
    "FILTER": lambda call: f"SELECT {_filled(call)} FILTER (WHERE cost > 10) FROM visits",
    "within a unit": lambda call: (
        f"SELECT COUNT(v) FROM (SELECT patient_id, {_filled(call)} AS v FROM visits GROUP BY patient_id)"
    ),
    "over releases": lambda call: (
        f"SELECT {call.format(x='n', y='m', k='plan')} FROM "
        "(SELECT plan, COUNT(*) AS n, SUM(cost) AS m FROM visits GROUP BY plan) HAVING COUNT(*) > 1"
    ),
    "window over releases": lambda call: (
        f"SELECT plan, {call.format(x='COUNT(*)', y='SUM(cost)', k='plan')} OVER () FROM visits GROUP BY plan"
    ),
}
_STUDY = {
    "version": 1,
    "privacy_unit": "patient",
    "budget": {"epsilon": 10, "delta": "1e-6"},
    "tables": {
        "visits": {
            "unit": "patient_id",
            "rows_per_unit": 5,
            "columns": {
                "plan": {"type": "varchar", "values": ["A", "B"], "nullable": False},
                "cost": {"type": "double", "bounds": [0, 500]},
                "age": {"type": "integer", "bounds": [0, 110]},
            },
        }
    },
}


def _filled(call: str) -> str:
    return call.format(x="cost", y="age", k="plan")


def aggregates() -> str:
    """Return the tables of aggregates: where each is allowed, found by trying, and what it computes."""
    visits = pyarrow.table({"patient_id": [1], "plan": ["A"], "cost": [1.0], "age": [40]})
    lines = [f"| aggregate | {' | '.join(_PLACES)} |", f"|---|{'---|' * len(_PLACES)}"]
    with dpsql.connect({"visits": visits}, policy=_STUDY, ledger=":memory:", epsilon=1) as con:
        for call in _calls():
            cells = ["yes" if _answered(con, place(call)) else "–" for place in _PLACES.values()]
            lines.append(f"| `{call.format(x='x', y='y', k='k')}` | {' | '.join(cells)} |")
    lines += ["", "| aggregate | is |", "|---|---|"]
    lines += [f"| `{entry.signature}` | {_cell(entry.says)} |" for entry in AGGREGATE_CALLS]
    return "\n".join(lines) + "\n"


def _answered(con: dpsql.Connection, sql: str) -> bool:
    try:
        con.explain(sql)
    except dpsql.QueryRejected:
        return False
    return True


def _calls() -> Iterator[str]:
    """Return a call of each aggregate by each name, as a template over numbers x and y, and a key k."""
    for entry in AGGREGATE_CALLS:
        for form, name in iterate_distinct_spellings(entry):
            yield name + form.sample
    # Of the keys, not of rows.
    yield "GROUPING({k})"


def grammar() -> str:
    """Return the grammar with the words for aggregates, by the terminal of their syntax."""
    named: dict[str, list[str]] = defaultdict(list)
    for entry in AGGREGATE_CALLS:
        for form in entry.forms:
            named[form.terminal] += map(str.lower, form.names)
    # A longer word first: of alternatives the first that fits is taken.
    lines = [
        rf"{terminal}.2: /({'|'.join(sorted(names, key=len, reverse=True))})(?=\s*\()/i"
        for terminal, names in named.items()
    ]
    pattern = re.compile(r"(^// aggregates: generated[^\n]*\n).*?(^// end$)", re.DOTALL | re.MULTILINE)
    text = GRAMMAR.read_text(encoding="utf-8")
    return pattern.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text)


# ---------------------------------------------------------------------------------------- pages


def _code(value: object) -> str:
    if value in (None, {}, []):
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text.replace('|', chr(92) + '|')}`"


def _cell(text: str) -> str:
    """Return a text on one line, with < escaped where it looks like an HTML tag."""
    line = " ".join(text.split()).replace("|", r"\|")
    return re.sub(r"<(?=\w+>)", "&lt;", line)


_UNREAD_TYPES = (
    "INTERVAL",
    "TIME WITH TIME ZONE",
    "VARCHAR[]",
    "STRUCT(…)",
    "MAP(…)",
    "BIT, BIGNUM, UNION, VARIANT, GEOMETRY",
)


def types() -> str:
    """Return the table of the types of a policy, and of the engine types that none of them reads."""
    lines = ["| type | the engine's names | is read | what it can be used for |", "|---|---|---|---|"]
    lines += [
        f"| `{kind.name}` | {', '.join(f'`{name}`' for name in kind.names if name != kind.name)} | {_cell(kind.reading)} | {_cell(kind.operations)} |"
        for kind in POLICY_TYPES
    ]
    lines += [f"| not read | `{name}` | {_cell(describe_unread_type(name))} | |" for name in _UNREAD_TYPES]
    return "\n".join(lines) + "\n"


def engines() -> str:
    """Return the page of engines: their functions, with the reason why no row fails, and what they do not support."""
    rooms = {
        "PostgreSQL": (POSTGRES_FUNCTIONS, POSTGRES_UNSUPPORTED),
        "Spark": (SPARK_FUNCTIONS, SPARK_UNSUPPORTED),
        "ClickHouse": (CLICKHOUSE_FUNCTIONS, CLICKHOUSE_UNSUPPORTED),
    }
    *names, last = rooms
    lines = [
        "# Engines",
        _MADE.format(source="the dialects of `dpsql.backends`"),
        "DuckDB supports everything in the [SQL reference](sql.md). It always computes what is above the release boundary, and look-ups in public",
        "tables. This page lists what other engines compute on private rows. Everything else is refused with code `engine` or",
        "`engine_function` before anything is charged.",
        "",
        *_describe_versions(),
        "## Constructs",
        f"{', '.join(names)} and {last} have counts, sums, averages, variances, distinct values, quantiles, histograms and top groups across",
        "units; known and secret keys; filters, CASE, joins, subqueries, set operations, grouping sets; selected clamps; partitions. Within",
        "a unit they have windows and all aggregates: counts, sums and means, also of distinct values, minima and maxima,",
        "ARG_MIN, ARG_MAX, MEDIAN, QUANTILE_DISC and quartiles.",
        "",
    ]
    for engine, (_, unsupported) in rooms.items():
        lines += [f"{engine} does not support:", "", *(f"- {item}" for item in unsupported), ""]
    numbers = ", ".join(f"{engine} has {len(known)}" for engine, (known, _) in rooms.items())
    lines += [
        "## Functions",
        f"Of {len(FUNCTIONS)} functions, {numbers}. If only some types are listed, calls with other types are refused.",
        "",
        f"| function |{''.join(f' types on {engine} | why no row fails |' for engine in rooms)}",
        f"|---|{'---|---|' * len(rooms)}",
    ]
    for name, function in FUNCTIONS.items():
        if any(name in known for known, _ in rooms.values()):
            cells = (cell for known, _ in rooms.values() for cell in _spelt(known.get(name)))
            lines.append(f"| {_code(function.signature)} | {' | '.join(cells)} |")
    for engine, (known, _) in rooms.items():
        lacking = ", ".join(_code(FUNCTIONS[name].signature) for name in FUNCTIONS if name not in known)
        lines += ["", f"{engine} does not have {lacking}."]
    return "\n".join(lines) + "\n"


def _describe_versions() -> Iterator[str]:
    """Return the reviewed versions of DuckDB and sqlglot, what differs between them, and what was seen on them."""
    yield "## Versions of DuckDB and sqlglot"
    yield f"These were reviewed: {format_reviewed(*REVIEWED)}. dpsql refuses to open any other version (`engine_version`) unless"
    yield f"`{COMMAND}` has certified it on the machine: the command tries the laws below, takes a minute or two, needs no data, and writes a"
    yield f"certificate into the folder of the user's configuration, or to the file that `{VARIABLE}` names. A certificate counts for the"
    yield "versions, the platform and the laws that it states, and for no others; a damaged one is refused (`certificate`)."
    yield ""
    yield "| law | of | what must hold |"
    yield "|---|---|---|"
    for law in LAWS:
        yield f"| {law.name} | {law.library} | {_cell(law.claim)} |"
    yield ""
    yield "Queries have the meaning of DuckDB 2.0 on every version. Older versions differ in these points:"
    yield ""
    yield "| since | what is new | on an older version | why that is enough |"
    yield "|---|---|---|---|"
    for name, table in (("DuckDB", DUCKDB_DIFFERENCES), ("sqlglot", SQLGLOT_DIFFERENCES)):
        for each in sorted(table.values(), key=lambda difference: difference.since):
            since = f"{name} {'.'.join(map(str, each.since))}"
            yield f"| {since} | {_cell(each.has)} | {_cell(each.before)} | {_cell(each.why)} |"
    yield ""
    yield "`python -m tests.versions` tried the ends and the middle of each range: all laws and, without `--laws`, the tests of engines and parsers, of which"
    yield "those are skipped that are about what a version does not have."
    yield ""
    yield "| DuckDB | sqlglot | laws that hold | laws that do not | tests passed | failed | skipped |"
    yield "|---|---|--:|---|--:|--:|--:|"
    for seen in json.loads((REFERENCE / "engine_versions.json").read_text(encoding="utf-8")):
        tests = " | ".join(str(seen.get(word, "not run")) for word in ("passed", "failed", "skipped"))
        yield f"| {seen['duckdb']} | {seen['sqlglot']} | {seen['laws']} | {', '.join(seen['broken']) or 'none'} | {tests} |"
    yield ""


def _spelt(spelling: Spelling | TypeSpelling | CallSpelling | None) -> tuple[str, str]:
    """Return the types for which an engine has a function, and why it is total there."""
    if spelling is None:
        return "no", ""
    kinds = spelling.templates if isinstance(spelling, TypeSpelling) else spelling.takes
    listed = ", ".join(sorted(kind.name.lower() for kind in kinds if kind.name != "NULL")) or "all types"
    return listed, _cell(spelling.total)


def pages() -> dict[Path, str]:
    """Return each generated page with its content."""
    sql = REFERENCE / "sql.md"
    marks = r"(<!-- aggregates: generated -->\n).*?(<!-- end -->)"
    text = sql.read_text(encoding="utf-8")
    made = re.sub(marks, lambda found: f"{found[1]}\n{aggregates()}\n{found[2]}", text, flags=re.DOTALL)
    kinds = REFERENCE / "types.md"
    marks = r"(<!-- types: generated -->\n).*?(<!-- end -->)"
    text = kinds.read_text(encoding="utf-8")
    listed = re.sub(marks, lambda found: f"{found[1]}\n{types()}\n{found[2]}", text, flags=re.DOTALL)
    return {
        kinds: listed,
        REFERENCE / "functions.md": render_markdown(),
        REFERENCE / "policy.md": policy(),
        REFERENCE / "cli.md": cli(),
        REFERENCE / "errors.md": error_tree(),
        gallery["PAGE"]: gallery["page"](),
        REFERENCE / "engines.md": engines(),
        sql: made,
    }


if __name__ == "__main__":
    for page, content in {
        **pages(),
        **gallery["pictures"](),
        GRAMMAR: grammar(),
        manual["PAGE"]: manual["manual"](),
    }.items():
        page.write_text(content, encoding="utf-8")
