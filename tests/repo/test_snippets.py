"""The documents can be followed: their Python runs, their commands work, their policies and queries are taken."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from repo import snippets
from repo.snippets import ROOT, Page, blocks, dpsql_command, name, pages

import dpsql

BEFORE = {snippets.page_before(page) for page in pages()}
PAGES = [page for page in pages() if blocks(page) and page not in BEFORE]
"""Pages that are run; those after which another one runs are run with it."""
DOCUMENTS = sorted({*pages(), *ROOT.glob("*.md")})
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's database and policy, made once."""
    directory = tmp_path_factory.mktemp("study")
    snippets.study(directory)
    return directory


@pytest.mark.sampled(1)
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_runs_as_documented(
    page: Path, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Top to bottom in a directory with the study, or for the tutorial in an empty one, every block does what it shows."""
    if page.name != "tutorial.md":
        snippets.copy(study, tmp_path)
    monkeypatch.chdir(tmp_path)
    Page(page).run()


def test_most_pages_are_run() -> None:
    """Finding no block would pass every test above."""
    languages = [block.language for page in PAGES for block in blocks(page)]
    assert {"README.md", "docs/tutorial.md", "docs/reference/sql.md"} <= {name(page) for page in PAGES}
    for language, least in (("python", 15), ("console", 15), ("yaml", 6), ("sql", 15)):
        assert languages.count(language) >= least, language


def test_named_commands_exist() -> None:
    """Each `dpsql …` in the documents is a command, with the options that are named with it."""
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    helped: dict[str, str] = {}
    for page, text in texts.items():
        for command in re.findall(r"(?m)^\$ (dpsql .*)$|`(dpsql [^`]+)`", text):
            words = " ".join(filter(None, command)).partition("#")[0].split()[1:]
            if words[0].isupper():  # a placeholder
                continue
            path = [words[0]]
            if (
                words[0] in ("audit", "ledger", "receipt", "users")
                and len(words) > 1
                and re.fullmatch(r"[a-z]+", words[1])
            ):
                path.append(words[1])
            key = " ".join(path)
            if key not in helped:
                ran = dpsql_command([*path, "--help"])
                assert ran.code == 0, f"{name(page)}: dpsql {key}"
                helped[key] = ran.text
            for option in (word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)):
                assert option in helped[key], f"{name(page)}: dpsql {key} {option}"
    assert set(helped) >= {"query", "explain", "check", "init", "budget", "demo", "shell", "ledger verify"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_links_lead_to_existing_targets(page: Path) -> None:
    """Each file that is linked to exists, and each heading in it."""
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {path}"
        if anchor and target.suffix == ".md":
            assert anchor[1:] in _anchors(target), f"{name(page)} links to {path}{anchor}"


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_layout_matches_the_package() -> None:
    """Every folder of the package is in the layout of CONTRIBUTING.md, and everything in the layout is in the package.

    The order is that of the layers that imports keep.
    """
    (text, *_) = (block.text for block in blocks(ROOT / "CONTRIBUTING.md") if block.language == "text")
    listed = [found.rstrip("/") for found in re.findall(r"(?m)^(\S+)  ", text)]
    folders = {path.parent.relative_to(ROOT / "dpsql") for path in (ROOT / "dpsql").rglob("__init__.py")}
    assert {folder.parts[0] for folder in folders if folder.parts} <= {
        found.partition("/")[0] for found in listed
    }
    for found in listed:
        assert (ROOT / "dpsql" / found).exists(), found
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0][
        "layers"
    ]
    named = [found.removesuffix(".py").replace("/", ".") for found in listed]
    order = [layer.removeprefix("dpsql.") for layer in layers]
    assert [found for found in named if found in order] == [layer for layer in order if layer in named]


def test_readme_has_two_commands() -> None:
    """The README has two commands for a fresh machine: one installs and shows, one installs and tests."""
    text, own = (block.text for block in blocks(ROOT / "README.md") if block.language == "sh")
    assert len(own.splitlines()) == 3  # `benchmarks.newcomer` types them
    assert [line.split("  ")[0] for line in text.splitlines()] == [
        "python3 -m venv .venv && . .venv/bin/activate && pip install . && dpsql demo",
        ".ci/run",
    ]
    assert os.access(ROOT / ".ci" / "check", os.X_OK)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_readme_is_short() -> None:
    """The README is what a newcomer reads first; the rest is in docs/."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_page_of_budgets_matches_the_forecast(study: Path) -> None:
    """The figures on the page of budgets are what the forecast says."""
    page = (ROOT / "docs" / "how-to" / "budgets.md").read_text(encoding="utf-8")
    claimed = re.search(r"(\d+) queries at\s+ε 0.2, (\d+)\s+at\s+ε\s+0.1\s+or\s+(\d+)\s+at\s+ε\s+0.05", page)
    assert claimed is not None
    con = dpsql.connect(str(study / "hie.duckdb"), policy=str(study / "hie.yaml"), ledger=":memory:")
    with con:
        for count, epsilon in zip(claimed.groups(), ("0.2", "0.1", "0.05"), strict=True):
            (query,) = con.budget(plan="SELECT COUNT(*) FROM visits", epsilon=epsilon).queries
            assert int(count) == query.times


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```python\nraise ValueError('spent')\n```", "line 1: spent"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2, x\n```", "line 5: 1"),
        ("```console\n$ dpsql query hie.duckdb 'SELECT 1 + FROM visits' -e 0.1\n…\n```", "syntax"),
        ("```console\n$ dpsql query hie.duckdb 'SELECT SUM(cost) FROM visits' -e 0.1\nsum\n```", "±95%"),
        ("```console\n$ dpsql query hie.duckdb 'SELECT 1' -e 0.1\nerror[column]: …\n```", "SELECT 1"),
        ("```yaml\nbudget: {epsilon: -1}\n```", "epsilon"),
        ("```sql\nSELECT cost FROM visits\n```", "would be released row by row"),
        ("```sql\n-- refused: column\nSELECT SUM(region) FROM visits\n```", "no bounds"),
        ("```sql\n-- refused: column\nSELECT COUNT(*) FROM visits\n```", "None"),
        (
            '```sql title="T-SQL"\nSELECT TOP 1 WITH TIES region, COUNT(*) FROM visits GROUP BY region ORDER BY 2\n```',
            "WITH TIES is not supported",
        ),
        ("```rust\n```", "page.md"),
        ("  ```python\nx\n```", "a fence that is not run"),
    ],
)
def test_wrong_page_is_found(
    text: str, reason: str, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A documented block that does something else raises an error with the page and the line."""
    snippets.copy(study, tmp_path)
    (tmp_path / "page.md").write_text(text + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(snippets, "ROOT", tmp_path)
    with pytest.raises(AssertionError, match=reason):
        Page(tmp_path / "page.md").run()


def test_tutorial_names_words_of_the_web_page() -> None:
    """Bold words of the section on the browser are words of the page's files."""
    section = (ROOT / "docs" / "tutorial-analyst.md").read_text(encoding="utf-8").partition("## 4.")[2]
    bold = set(re.findall(r"\*\*(\w+)\*\*", section.partition("\n## ")[0]))
    files = (ROOT / "dpsql" / "interfaces" / "server" / "http" / "page").glob("*.js")
    page = "".join(path.read_text(encoding="utf-8") for path in files)
    assert bold == {"Query", "History", "Tables", "Budget"}
    assert all(f'["{word}", ' in page for word in bold)
