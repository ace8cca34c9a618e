"""Draw docs/answer.svg: one answer of dpsql at two losses, with its intervals, beside the true values.

Run `python docs/answer.py`; this needs matplotlib. The data is the public study of `dpsql demo`, which is why the true values
may be drawn. Each run draws new noise, so the figure differs a little each time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

import dpsql
from dpsql.interfaces.demo import compute_true_rows, write_demo_files

PICTURE = Path(__file__).parent / "answer.svg"
SQL = """
SELECT CASE WHEN idp = 1 THEN 'individual deductible'
            WHEN lncoins = 0 THEN 'free care'
            WHEN lncoins < 3.5 THEN 'pays 25%'
            WHEN lncoins < 4.2 THEN 'pays 50%'
            ELSE 'pays 95%' END AS plan,
       AVG(mdvis) AS visits
FROM rand_hie
GROUP BY plan
"""
LOSSES = {"0.1": ("#e08a1e", 0.17), "0.5": ("#1f5fbf", -0.17)}
"""The ε of each answer, with its color and its distance from the line of the group."""


def draw_answer(path: Path = PICTURE) -> None:
    """Ask the study once at each loss, and write the figure to `path`."""
    true_values = dict(compute_true_rows(SQL))
    plans = sorted(true_values, key=lambda plan: true_values[plan])
    figure = Figure(figsize=(7.8, 3.7), layout="constrained")
    axes = figure.add_subplot()
    with tempfile.TemporaryDirectory() as folder:
        database, policy = write_demo_files(Path(folder))
        with dpsql.connect(str(database), policy=policy, ledger=":memory:") as con:
            for epsilon, (color, offset) in LOSSES.items():
                result = con.query(SQL, epsilon=epsilon)
                places = [plans.index(plan) + offset for plan, _ in result.rows]
                values = [visits for _, visits in result.rows]
                ends = [row[1] or (0, 0) for row in result.intervals(0.95)]
                axes.errorbar(
                    values,
                    places,
                    xerr=[
                        [value - low for value, (low, _) in zip(values, ends, strict=True)],
                        [high - value for value, (_, high) in zip(values, ends, strict=True)],
                    ],
                    fmt="o", color=color, markersize=5, linewidth=2, capsize=4, label=f"answer at ε = {epsilon} with its 95% interval",
                )  # fmt: skip
    axes.scatter(
        [true_values[plan] for plan in plans], range(len(plans)),
        marker="|", s=520, linewidths=1.8, color="#333", zorder=3,
    )  # fmt: skip
    axes.plot([], [], "|", color="#333", markersize=9, markeredgewidth=1.8, label="true value")
    axes.set_yticks(range(len(plans)), plans)
    axes.set_xlabel("visits to a doctor in a year")
    axes.set_title(
        "SELECT plan, AVG(mdvis) AS visits FROM rand_hie GROUP BY plan", family="monospace", size=10
    )
    axes.grid(axis="x", color="#ddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    with mpl.rc_context({"svg.hashsalt": "dpsql"}):
        figure.savefig(path, metadata={"Date": None, "Title": "An answer of dpsql, with its intervals"})


if __name__ == "__main__":
    draw_answer()
