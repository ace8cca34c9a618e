"""Write the same visits as twelve programs do, each with its encoding, names, decimal sign and dates."""

from __future__ import annotations

import datetime as dt
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

N_VISITS = 1_200
N_PATIENTS = 300


@dataclass(frozen=True, slots=True)
class Visit:
    """A visit: whose, when, where, and its cost, which may be missing."""

    patient: int
    day: dt.date
    town: str
    cost: float | None


@dataclass(frozen=True, slots=True)
class Written:
    """How a program writes the visits: into a file of this name, with these names of the columns patient, day and cost.

    A file that is `broken` cannot be read as it is; the error must name the line and the remedy.
    """

    program: str
    file: str
    write: Callable[[Path, Sequence[Visit]], None]
    columns: tuple[str, str, str]
    broken: bool = False


def list_visits() -> list[Visit]:
    """Return the visits, by arithmetic."""
    start = dt.date(2025, 1, 1)
    return [
        Visit(
            number % N_PATIENTS,
            start + dt.timedelta(days=number * 7 % 365),
            ("Köln", "Bonn", "Zürich")[number % 3],
            None if number % 50 == 49 else (number * 37 % 200_000) / 100 - 10,
        )
        for number in range(N_VISITS)
    ]


def _format_number(number: float | None, point: str, group: str, missing: str = "") -> str:
    if number is None:
        return missing
    text = f"{number:,.2f}"
    return text.replace(",", "\0").replace(".", point).replace("\0", group)


def _write_excel_german(file: Path, visits: Sequence[Visit]) -> None:
    lines = ["Besuche 2025;;;", ";;;", "Patient;Tag;Ort;Kosten"]
    for each in visits:
        cost = _format_number(each.cost, ",", ".")
        lines.append(
            f"{each.patient};{each.day:%d.%m.%Y};{each.town};{cost} €"
            if cost
            else f"{each.patient};{each.day:%d.%m.%Y};{each.town};"
        )
    file.write_bytes(("\r\n".join(lines) + "\r\n").encode("cp1252"))


def _write_excel_unicode_text(file: Path, visits: Sequence[Visit]) -> None:
    lines = ["patient\tday\ttown\tcost"]
    lines += [
        f'{each.patient}\t{each.day.month}/{each.day.day}/{each.day.year}\t{each.town}\t"{_format_number(each.cost, ".", ",")}"'
        for each in visits
    ]
    file.write_bytes("\r\n".join(lines).encode("utf-16"))


def _write_excel_american(file: Path, visits: Sequence[Visit]) -> None:
    lines = ["patient,day,town,cost,remark,"]
    for each in visits:
        cost = _format_number(abs(each.cost), ".", ",") if each.cost is not None else ""
        money = f'"(${cost})"' if each.cost is not None and each.cost < 0 else f'"${cost}"' if cost else ""
        lines.append(f"{each.patient},{each.day.month}/{each.day.day}/{each.day:%y},{each.town},{money},,")
    file.write_bytes(("\r\n".join(lines) + "\r\n").encode("utf-8-sig"))


def _write_excel_workbook(file: Path, visits: Sequence[Visit]) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Sheet1"
    sheet.append(["patient", "day", "town", "cost"])
    for each in visits:
        sheet.append([each.patient, each.day, each.town, "n/a" if each.cost is None else each.cost])
    book.save(file)


def _write_sas(file: Path, visits: Sequence[Visit]) -> None:
    lines = ["PATIENT,DAY,TOWN,COST"]
    for each in visits:
        cost = "." if each.cost is None else f"{each.cost:.2f}"
        lines.append(
            f"{each.patient},{each.day:%d%b%Y},{each.town},{cost}".replace(
                f"{each.day:%b}", f"{each.day:%b}".upper()
            )
        )
    file.write_bytes("\n".join(lines).encode("latin-1"))


def _write_r(file: Path, visits: Sequence[Visit]) -> None:
    lines = ['"","patient","day","town","cost"']
    lines += [
        f'"{number}",{each.patient},{each.day},"{each.town}",{"NA" if each.cost is None else repr(each.cost)}'
        for number, each in enumerate(visits, 1)
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_r_csv2(file: Path, visits: Sequence[Visit]) -> None:
    lines = ['"";"patient";"day";"town";"cost"']
    lines += [
        f'"{number}";{each.patient};{each.day};"{each.town}";{_format_number(each.cost, ",", "", "NA")}'
        for number, each in enumerate(visits, 1)
    ]
    file.write_bytes(("\n".join(lines) + "\n").encode("latin-1"))


def _write_pandas(file: Path, visits: Sequence[Visit]) -> None:
    lines = [",patient,day,town,cost,cost"]
    lines += [
        f"{number},{each.patient},{each.day} 00:00:00,{each.town},{'' if each.cost is None else each.cost},{number}"
        for number, each in enumerate(visits)
    ]
    with gzip.open(file, "wt", encoding="utf-8") as text:
        text.write("\n".join(lines) + "\n")


def _write_sap(file: Path, visits: Sequence[Visit]) -> None:
    lines = ["31.12.2025\tDynamic List Display\t\t\t1", "", "\tPatient\tDatum\tOrt\tBetrag", ""]
    for each in visits:
        cost = _format_number(None if each.cost is None else abs(each.cost), ",", ".")
        sign = "-" if each.cost is not None and each.cost < 0 else " "
        lines.append(f"\t{each.patient}\t{each.day:%d.%m.%Y}\t{each.town}\t{cost}{sign}")
    file.write_bytes("\r\n".join(lines).encode("utf-16"))


def _write_copy(file: Path, visits: Sequence[Visit]) -> None:
    lines = [
        f"{each.patient},{each.day},{each.town},{'' if each.cost is None else each.cost}" for each in visits
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_google_sheets(file: Path, visits: Sequence[Visit]) -> None:
    lines = ["Patient,Date,Town,Cost"]
    lines += [
        f'{each.patient},{each.day:%d/%m/%Y},{each.town},"£{_format_number(each.cost, ".", ",")}"'
        if each.cost is not None
        else f"{each.patient},{each.day:%d/%m/%Y},{each.town},#N/A"
        for each in visits
    ]
    file.write_bytes("\r\n".join(lines).encode("utf-8"))


def _write_by_hand(file: Path, visits: Sequence[Visit]) -> None:
    ends = ("\n", "\r\n", "\r")
    lines = ["patient,day,town,cost"]
    lines += [
        f"{each.patient},{each.day},{each.town},{'' if each.cost is None else each.cost}{',see note' * (number == 700)}"
        for number, each in enumerate(visits)
    ]
    text = "".join(line + ends[number % 3] for number, line in enumerate(lines))
    file.write_text(text, encoding="utf-8", newline="")


_ENGLISH = ("patient", "day", "cost")
WRITERS: Sequence[Written] = (
    Written("Excel, CSV in Germany", "visits.csv", _write_excel_german, ("Patient", "Tag", "Kosten")),
    Written("Excel, Unicode text", "visits.tsv", _write_excel_unicode_text, _ENGLISH),
    Written("Excel, CSV UTF-8 in the US", "visits.csv", _write_excel_american, _ENGLISH),
    Written("Excel workbook", "visits.xlsx", _write_excel_workbook, _ENGLISH),
    Written("SAS, PROC EXPORT", "visits.csv", _write_sas, ("PATIENT", "DAY", "COST")),
    Written("R, write.csv", "visits.csv", _write_r, _ENGLISH),
    Written("R, write.csv2", "visits.csv", _write_r_csv2, _ENGLISH),
    Written("pandas, to_csv", "visits.csv.gz", _write_pandas, _ENGLISH),
    Written("SAP, list to file", "visits.tsv", _write_sap, ("Patient", "Datum", "Betrag")),
    Written("PostgreSQL, COPY", "visits.csv", _write_copy, ("column1", "column2", "column4")),
    Written("Google Sheets", "visits.csv", _write_google_sheets, ("Patient", "Date", "Cost")),
    Written("edited by hand", "visits.csv", _write_by_hand, _ENGLISH, broken=True),
)
"""The programs, each with its writer."""
