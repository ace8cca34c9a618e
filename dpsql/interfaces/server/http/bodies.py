"""The bodies of requests and answers as pydantic models, whose JSON schemas are the OpenAPI description.

A request's body is refused with dpsql's own words and the path of the wrong key, never with those of pydantic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)

from dpsql.engine.budgets import collect_budgets, iterate_policy_warnings
from dpsql.errors import ProgrammingError
from dpsql.interfaces.server.statements import MOST_CHARACTERS
from dpsql.ledger.budget_state import AccountKey
from dpsql.policy.problem import format_path
from dpsql.policy.request.query import QueryOptions
from dpsql.privacy.accounting.accountants import get_accountant
from dpsql.privacy.accounting.events import NOTHING
from dpsql.results.json_format import read_parameters

if TYPE_CHECKING:
    from dpsql.interfaces.server.users import Token, User
    from dpsql.ledger.protocol import Entry
    from dpsql.policy import Policy

MOST_CONFIDENCES = 8
"""The largest number of confidences of one request."""
MOST_QUERIES = 100
"""The largest number of queries that are priced together."""
MOST_PARAMETERS = 1_000
MOST_SECONDS = 86_400
_MOST_CODE = 4_096
"""The largest number of characters of an issuer's state and code, and of a client's secret."""
_FRACTION = re.compile(r"\d{1,600}/[1-9]\d{0,599}", re.ASCII)
_OPTIONS = ("epsilon", "delta", "max_groups", "target_error", "confidence", "dialect", "replay")


@dataclass(frozen=True, slots=True)
class _Expected:
    """The words for the values that a field takes, and for an example."""

    words: str
    hint: str | None = None


# The values of requests.


def _parse_amount(value: Any) -> Any:
    """Parse a number, or its text, exactly: a decimal, or a fraction such as "1/3"."""
    if isinstance(value, str) and _FRACTION.fullmatch(value):
        return Fraction(value)
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value
    raise ValueError


def _parse_parameters(value: Any) -> Any:
    if not isinstance(value, (list, dict)) or len(value) > MOST_PARAMETERS:
        raise ValueError
    return read_parameters(value)


def parse_confidence(value: Any) -> float:
    """Parse the confidence of intervals. Raises ProgrammingError unless it is a number between 0 and 1."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1:
        raise ProgrammingError(
            "a confidence must be between 0 and 1", code="argument", hint="use 0.95, for example"
        )
    return float(value)


def _parse_confidences(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > MOST_CONFIDENCES:
        raise ValueError
    return tuple(dict.fromkeys(map(parse_confidence, value)))


def _parse_seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MOST_SECONDS:
        raise ValueError
    return float(value)


def _parse_sql(value: Any) -> str:
    """Parse a query text. The parser refuses half a surrogate pair, with its own words."""
    if not isinstance(value, str) or len(value) > MOST_CHARACTERS:
        raise ValueError
    return value


def _require_short_texts(texts: list[str]) -> list[str]:
    if sum(map(len, texts)) > MOST_CHARACTERS:
        raise ValueError
    return texts


_AMOUNT_SCHEMA = {"oneOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]}
_Amount = Annotated[
    Any,
    PlainValidator(_parse_amount),
    WithJsonSchema(_AMOUNT_SCHEMA),
    _Expected("a number or its text", 'write 0.1 or "0.1"'),
]
_Text = Annotated[str | None, _Expected("a text")]
_Sql = Annotated[
    str,
    PlainValidator(_parse_sql),
    WithJsonSchema({"type": "string", "maxLength": MOST_CHARACTERS}),
    _Expected(f"a text of at most {MOST_CHARACTERS:,} characters"),
]
_Parameters = Annotated[
    Any,
    PlainValidator(_parse_parameters),
    WithJsonSchema(
        {"oneOf": [{"type": "array", "maxItems": MOST_PARAMETERS}, {"type": "object"}, {"type": "null"}]}
    ),
    _Expected(f"a list or object of at most {MOST_PARAMETERS:,} values"),
]
_Confidences = Annotated[
    tuple[float, ...],
    PlainValidator(_parse_confidences),
    WithJsonSchema({"type": ["array", "null"], "items": {"type": "number"}, "maxItems": MOST_CONFIDENCES}),
    _Expected(f"a list of at most {MOST_CONFIDENCES} numbers"),
]
_Seconds = Annotated[
    float | None,
    PlainValidator(_parse_seconds),
    WithJsonSchema({"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": MOST_SECONDS}),
    _Expected(f"a number above 0, up to {MOST_SECONDS:,}"),
]
_Queries = Annotated[
    list[Annotated[str, PlainValidator(_parse_sql), WithJsonSchema({"type": "string"})]],
    Field(max_length=MOST_QUERIES),
    AfterValidator(_require_short_texts),
    _Expected(f"a list of at most {MOST_QUERIES} texts with at most {MOST_CHARACTERS:,} characters together"),
]
_Digest = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{43}$"), _Expected("a SHA-256 digest in base64url")]
_LoginText = Annotated[
    str,
    Field(min_length=1, max_length=_MOST_CODE),
    _Expected(f"a text of 1 to {_MOST_CODE:,} characters"),
]


# The bodies of requests. A key that is null counts as absent.


class RequestBody(BaseModel):
    """The body of a request; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class CombineBody(RequestBody):
    """A query that is answered from stored releases."""

    sql: _Sql = Field(description="One SELECT.")
    parameters: _Parameters = Field(
        default=(),
        description="Values for `?`, or by name for `:name`; values of types that JSON lacks are written as"
        ' {"type": "DATE", "value": "2024-01-31"}.',
    )
    max_groups: Annotated[int | None, _Expected("a whole number")] = Field(
        default=None, description="The largest number of groups of one privacy unit, at least 1."
    )
    dialect: _Text = Field(default=None, description="duckdb, postgres, spark, snowflake, bigquery or tsql.")
    confidences: _Confidences = Field(default=(0.95,), description="The confidences of the intervals.")
    seconds: _Seconds = Field(
        default=None, description="The time after which the query is cancelled unless it is already charged."
    )

    @property
    def options(self) -> QueryOptions:
        """Return the options of the query that the body states."""
        found = {name: getattr(self, name, None) for name in _OPTIONS}
        return {name: value for name, value in found.items() if value is not None}  # type: ignore[return-value]


class QueryBody(CombineBody):
    """A query with its options."""

    epsilon: _Amount = Field(default=None, description="The privacy loss of the query.")
    default_epsilon: _Amount = Field(
        default=None, description="The privacy loss if neither `epsilon` nor the text states one."
    )
    delta: _Amount = Field(default=None, description="The δ that is spent on selecting group keys.")
    target_error: _Amount = Field(
        default=None, description='The largest error of a value, such as 50 or "5%", instead of a loss.'
    )
    confidence: _Amount = Field(
        default=None, description="The probability that a value meets the target error."
    )
    replay: Annotated[bool | None, _Expected("true or false")] = Field(
        default=None, description="False draws new noise, at a charge."
    )


class QuoteBody(RequestBody):
    """Queries to price together."""

    queries: _Queries = Field(description="The queries, each one SELECT.")
    epsilon: _Amount = Field(default=None, description="The loss of queries that state none.")
    dialect: _Text = Field(default=None, description="The SQL dialect of the queries.")


class LoginBody(RequestBody):
    """The start of a login at the issuer."""

    binder: _Digest = Field(description="The SHA-256 digest of the client's secret, in base64url.")


class CodeBody(RequestBody):
    """The end of a login at the issuer."""

    state: _LoginText = Field(description="The issuer's state.")
    code: _LoginText = Field(description="The issuer's code.")
    secret: _LoginText = Field(description="The client's secret.")


_Model = TypeVar("_Model", bound=RequestBody)
_EXAMPLE = '{"sql": "SELECT …"}'


def parse_body(model: type[_Model], data: Any) -> _Model:
    """Parse a request's body from JSON data.

    Raises:
        ProgrammingError: The body is invalid (`body`), or an option or a parameter in it is (`argument`, `parameter`).

    >>> parse_body(QuoteBody, {"queries": ["SELECT 1"], "epsilon": "1/3"}).epsilon
    Fraction(1, 3)
    """
    if not isinstance(data, dict):
        raise make_body_error("must be a JSON object", _EXAMPLE)
    known = model.model_fields
    for name, value in data.items():
        is_absent = value is None and name in QueryBody.model_fields and issubclass(QueryBody, model)
        if name not in known and not is_absent:
            raise _make_unknown_key_error(model, name)
    try:
        return model.model_validate({name: value for name, value in data.items() if value is not None})
    except ValidationError as error:
        path = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
    name = str(path[0])
    expected = next(each for each in known[name].metadata if isinstance(each, _Expected))
    inner = f"; `{format_path(path)}` is invalid" if len(path) > 1 else ""
    raise make_body_error(f"needs `{name}` to be {expected.words}{inner}", expected.hint)


def _make_unknown_key_error(model: type[RequestBody], name: str) -> ProgrammingError:
    if model is CombineBody and name in QueryBody.model_fields:
        return ProgrammingError(
            f"combine does not take {name}; use only max_groups and dialect", code="argument"
        )
    return make_body_error(f"has an unknown name {name[:60]!r}", f"names are {', '.join(model.model_fields)}")


def make_body_error(reason: str, hint: str | None = None) -> ProgrammingError:
    """Return the error for an invalid body."""
    return ProgrammingError(f"the body of the request {reason}", code="body", hint=hint)


# The bodies of answers.


class AnswerColumn(BaseModel):
    """A column of an answer."""

    name: str
    type: str
    has_intervals: bool
    is_count: bool


class CellIntervals(BaseModel):
    """The intervals of all cells at one confidence; null for a cell without one."""

    confidence: float
    ends: list[Any]


class AnswerBody(BaseModel):
    """The private answer to a query."""

    answer: str | None = Field(description="The id of the answer, for intervals at other confidences.")
    cost: list[str]
    columns: list[AnswerColumn]
    scales: list[Any] = Field(description="The standard deviation of each cell's noise, or null.")
    intervals: list[CellIntervals]
    notices: list[str]
    branches: list[int]
    receipt: dict[str, Any]
    rows: list[list[Any]]


class ExplanationBody(BaseModel):
    """The plan of a query, line by line, with its proofs and its price."""

    plan: list[str]
    notices: list[str]
    receipt: dict[str, Any]
    price: dict[str, Any] | None


class ErrorFields(BaseModel):
    """What was refused, and why."""

    error: str = Field(description="The class of the error in Python.")
    code: str = Field(description="A stable code for programs.")
    message: str = Field(description="The rule.")
    hint: str | None
    line: int | None
    column: int | None
    charged: bool | None = Field(description="Whether the query was charged.")


class ErrorBody(BaseModel):
    """An error."""

    error: ErrorFields


class BudgetsBody(BaseModel):
    """Budgets with their names."""

    budgets: list[dict[str, Any]]


class EntryBody(BaseModel):
    """A charge as its analyst sees it."""

    id: int
    charge: int
    at: str
    table: str
    account: str | None
    query: str
    loss: str
    delta: str
    box: str | None
    epsilon: str | None
    """The ε of a query with the same cost; None for a table that the policy no longer has."""

    @classmethod
    def from_entry(cls, entry: Entry, policy: Policy) -> Self:
        """Return the body of a ledger entry."""
        return cls(**_list_entry_fields(entry, policy))


class FullEntryBody(EntryBody):
    """An entry of the ledger as owners and auditors see it."""

    kind: str
    analyst: str
    spent: str
    reason: Any

    @classmethod
    def from_entry(cls, entry: Entry, policy: Policy) -> Self:
        """Return the body of a ledger entry."""
        return cls(
            **_list_entry_fields(entry, policy),
            kind=entry.kind,
            analyst=entry.analyst,
            spent=str(entry.spent.loss_fraction),
            reason=entry.details.get("reason"),
        )


class ReceiptEntryBody(EntryBody):
    """An entry of a receipt."""

    digest: str

    @classmethod
    def from_entry(cls, entry: Entry, policy: Policy) -> Self:
        """Return the body of a ledger entry."""
        return cls(**_list_entry_fields(entry, policy), digest=entry.digest)


def _list_entry_fields(entry: Entry, policy: Policy) -> dict[str, Any]:
    epsilon = _compute_epsilon(entry, policy)
    return {
        "id": entry.id,
        "charge": entry.charge,
        "at": entry.at.isoformat(),
        "table": entry.table,
        "account": entry.account_analyst or None,
        "query": entry.query,
        "loss": str(entry.spend.loss_fraction),
        "delta": str(entry.spend.delta_fraction),
        "box": entry.box,
        "epsilon": None if epsilon is None else str(epsilon),
    }


def _compute_epsilon(entry: Entry, policy: Policy) -> Fraction | None:
    """Return the ε of a query with the cost of an entry; None if the policy no longer has the account."""
    analyst = entry.account_analyst
    budget = collect_budgets(policy, [analyst] if analyst else ()).get(
        AccountKey(entry.table, analyst) if analyst else entry.table
    )
    if budget is None:
        return None
    return get_accountant(budget.accountant).compute_remaining_epsilon(NOTHING, entry.spend)


class HistoryBody(BaseModel):
    """Charges, newest first."""

    history: list[EntryBody]


class EntriesBody(BaseModel):
    """Entries of the ledger, newest first."""

    entries: list[FullEntryBody]


class ReceiptBody(BaseModel):
    """The entries of one charge, with its details."""

    entries: list[ReceiptEntryBody]
    details: dict[str, Any]


class UserBody(BaseModel):
    """A user as owners and auditors see it."""

    name: str
    role: str
    created: str

    @classmethod
    def from_user(cls, user: User) -> UserBody:
        """Return the body of a user."""
        return cls(name=user.name, role=user.role.value, created=user.created.isoformat())


class TokenBody(BaseModel):
    """An access token as owners and auditors see it, without its secret."""

    id: str
    user: str
    name: str
    created: str
    expires: str

    @classmethod
    def from_token(cls, token: Token) -> TokenBody:
        """Return the body of a token."""
        return cls(
            id=token.id,
            user=token.user,
            name=token.label,
            created=token.created.isoformat(),
            expires=token.expires.isoformat(),
        )


class UsersBody(BaseModel):
    """Users and tokens."""

    users: list[UserBody]
    tokens: list[TokenBody]


class PolicyBody(BaseModel):
    """A policy with its digest and the advice on it."""

    digest: str
    advice: list[str]
    policy: dict[str, Any]

    @classmethod
    def from_policy(cls, policy: Policy) -> PolicyBody:
        """Return the body of a policy."""
        return cls(
            digest=policy.compute_digest(),
            advice=list(iterate_policy_warnings(policy)),
            policy=policy.model_dump(mode="json", exclude_defaults=True),
        )


class StatementsBody(BaseModel):
    """Statements and connections, as in pg_stat_activity."""

    statements: list[dict[str, Any]]

    @classmethod
    def from_rows(cls, rows: list[dict[str, Any]]) -> StatementsBody:
        """Return the body of the rows of pg_stat_activity."""
        return cls(statements=[{name: _write_time(value) for name, value in row.items()} for row in rows])


def _write_time(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


class EndedBody(BaseModel):
    """The number of a statement that was stopped."""

    ended: int


class CallerBody(BaseModel):
    """The caller of a request."""

    user: str
    role: str
    asks: bool
    oversees: bool
    default_epsilon: str | None


class SessionBody(CallerBody):
    """A session of the caller; it expires after some hours."""

    session: str
    seconds: float


class IssuerBody(BaseModel):
    """The OpenID Connect issuer, if there is one."""

    issuer: str | None


class AddressBody(BaseModel):
    """The issuer's login address."""

    address: str


class WordsBody(BaseModel):
    """Keywords and functions, for editors."""

    keywords: list[str]
    functions: list[str]


class HealthBody(BaseModel):
    """Whether the server accepts queries."""

    status: str


class RecordBody(BaseModel):
    """A record of dpsql."""

    model_config = ConfigDict(extra="allow")
