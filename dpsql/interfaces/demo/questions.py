"""The five queries of the demo."""

from __future__ import annotations

from dataclasses import dataclass

_HEALTH = (
    "CASE WHEN hlthp = 1 THEN 'poor' WHEN hlthf = 1 THEN 'fair'\n"
    "            WHEN hlthg = 1 THEN 'good' ELSE 'excellent' END AS health"
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question in words and in SQL.

    `select` also runs on the exact data, for the true answers of all groups; `after` selects and orders groups of the private
    answer only. The first `keys` columns are group keys. `remark` explains the answer.
    """

    title: str
    select: str
    remark: str
    after: str = ""
    keys: int = 0
    epsilon: str = "0.2"

    @property
    def sql(self) -> str:
        """Return the query as an analyst writes it."""
        return f"{self.select}\n{self.after}" if self.after else self.select


QUESTIONS = (
    Question(
        "How large is the study, and how often does a person see a doctor?",
        """SELECT COUNT(*) AS person_years,
       AVG(mdvis) AS visits,
       AVG(CASE WHEN mdvis = 0 THEN 1 ELSE 0 END) AS share_without
FROM rand_hie""",
        "Three answers for one price: the charge is the epsilon of the query, however many aggregates it has. The policy's bounds "
        "clamp visits at one per week, which changes the average by less than 0.01.",
    ),
    Question(
        "Does paying part of the bill keep people from the doctor?",
        """SELECT CASE WHEN idp = 1 THEN 'individual deductible'
            WHEN lncoins = 0 THEN 'free care'
            WHEN lncoins < 3.5 THEN 'pays 25%'
            WHEN lncoins < 4.2 THEN 'pays 50%'
            ELSE 'pays 95%' END AS plan,
       COUNT(*) AS person_years,
       AVG(mdvis) AS visits
FROM rand_hie
GROUP BY plan""",
        "The best-known result of the experiment: plans were assigned by lot, and free care meant about two thirds more "
        "visits than paying 95%. The noisy answers show it clearly.",
        after="ORDER BY visits DESC",
        keys=1,
    ),
    Question(
        "How do people rate their own health, and are they right?",
        f"""SELECT {_HEALTH},
       COUNT(*) AS person_years,
       AVG(disea) AS chronic_diseases
FROM rand_hie
GROUP BY health""",
        "The query itself names the groups, so they are public and all are shown. The fewer rows a group has, the "
        "wider the interval of its average.",
        keys=1,
    ),
    Question(
        "Who sees the doctor most?",
        f"""SELECT CASE WHEN physlm >= 0.5 THEN 'limited' ELSE 'not limited' END AS body,
       {_HEALTH},
       SUM(mdvis) AS all_visits,
       AVG(mdvis) AS visits
FROM rand_hie
GROUP BY body, health""",
        "HAVING, ORDER BY and LIMIT read only the noisy values, so they cost nothing.",
        after="HAVING COUNT(*) > 200\nORDER BY visits DESC\nLIMIT 4",
        keys=2,
    ),
    Question(
        "Which incentive payments were made most often?",
        """SELECT lpi, COUNT(*) AS person_years
FROM rand_hie
GROUP BY lpi""",
        "lpi is the logarithm of a payment in dollars (6.9 is 1,000), and the policy does not list the payments. An "
        "unusual payment would identify its recipient, so a group is shown only if its noisy count exceeds a "
        "threshold; the delta is charged for this.",
        after="ORDER BY person_years DESC\nLIMIT 6",
        keys=1,
    ),
)
