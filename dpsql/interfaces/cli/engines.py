"""`dpsql engines`: which versions of DuckDB and sqlglot were reviewed, and the verification of one that was not."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from dpsql.verification.law import Law

engines = typer.Typer(help="Verify the installed versions of DuckDB and sqlglot.", no_args_is_help=True)

CertificatePath = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        envvar="DPSQL_CERTIFICATE",
        metavar="FILE",
        help="The certificate; dpsql reads another one than the default if DPSQL_CERTIFICATE names it. [default: dpsql/engines.json in "
        "the folder of the user's configuration]",
        show_default=False,
    ),
]


@engines.command()
def verify(
    *,
    certificate: CertificatePath = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="LAW", help="Try one law, and write no certificate.", show_default=False),
    ] = None,
) -> None:
    """Try the laws that dpsql rests on with the installed versions, and write a certificate if all hold.

    It takes a minute or two, and needs no data. With a certificate, dpsql opens a version that was not reviewed. The certificate
    is valid for these versions of dpsql, DuckDB and sqlglot, this platform and these laws.
    """
    from dpsql.verification.certificate import (
        get_certificate_path,
        get_versions,
        remove_certificate,
        write_certificate,
    )
    from dpsql.verification.law import try_laws
    from dpsql.verification.laws import LAWS

    chosen = [law for law in LAWS if only in (None, law.name)]
    if not chosen:
        raise typer.BadParameter(f"there are: {', '.join(law.name for law in LAWS)}", param_hint="--only")
    path = certificate or get_certificate_path()
    versions = get_versions()
    print(f"DuckDB {versions['duckdb']}, sqlglot {versions['sqlglot']}")
    width, broken, begun = max(len(law.name) for law in chosen), 0, time.monotonic()
    for outcome in try_laws(chosen, _show_progress):
        seconds, begun = time.monotonic() - begun, time.monotonic()
        _clear_progress()
        broken += outcome.failure is not None
        result = "holds" if outcome.failure is None else "BROKEN"
        print(
            f"{outcome.law.name:{width}}  {result:6}  {outcome.tried:>4} tried  {seconds:5.1f} s  {outcome.law.claim}",
            flush=True,
        )
        if outcome.failure is not None:
            print(f"  {outcome.failure}")
    if broken:
        remove_certificate(path)  # one that was written before no longer tells the truth
        raise OperationalError(
            f"{broken} of {len(chosen)} laws {'does' if broken == 1 else 'do'} not hold; no certificate was written",
            code="engine_version",
            hint="install a version that was reviewed: dpsql engines show",
        )
    if only is None:
        write_certificate(path)
        print(f"all {len(chosen)} laws hold; certificate: {path}")


@engines.command()
def show(certificate: CertificatePath = None) -> None:
    """Show the installed versions, whether they were reviewed or certified, and the reviewed ranges."""
    from dpsql.verification.certificate import (
        REVIEWED,
        build_certificate,
        format_reviewed,
        get_certificate_path,
        get_versions,
        is_reviewed,
        read_certificate,
    )

    path = certificate or get_certificate_path()
    versions = get_versions()
    needed = not all(is_reviewed(name, version) for name, version in versions.items())
    certified = needed and read_certificate(path) == build_certificate()
    for name, version in versions.items():
        state = (
            "reviewed"
            if is_reviewed(name, version)
            else "certified"
            if certified
            else "neither reviewed nor certified"
        )
        print(f"{name} {version}: {state}")
    print(f"reviewed: {format_reviewed(*REVIEWED)}")
    print(f"certificate: {path}")


def _show_progress(law: Law, part: int, parts: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{law.name}: {part} of {parts}\x1b[K", end="", file=sys.stderr, flush=True)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
