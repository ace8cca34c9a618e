"""The web page in a browser: its views, the files that it may load, and its sessions."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from dpsql.interfaces.server.http import page as files
from dpsql.interfaces.server.http.access import IDLE, LONGEST, MOST_OF_ONE, PREFIX, WebSessions
from dpsql.interfaces.server.protocol.scram import Verifier

from .browser import Page, browsing
from .conftest import PASSWORD, Served, Told

QUERY = 'SELECT plan, COUNT(*) AS "<b>n</b>", AVG(cost) AS c FROM visits GROUP BY plan'


def begun(served: Served, name: str = "ana", password: str = PASSWORD) -> Told:
    """The answer to a request for a session."""
    proof = base64.b64encode(f"{name}:{password}".encode()).decode()
    return served.ask("/v1/session", method="POST", headers={"Authorization": f"Basic {proof}"})


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, shared: Served) -> Iterator[Page]:
    """A browser that shows the page."""
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        found.look(width=390, height=844, dark=True)
        found.open(f"http://127.0.0.1:{shared.http}/")
        found.wait("document.querySelector('#login')?.hidden === false")
        yield found


def log_in(page: Page, name: str) -> None:
    page.value("document.querySelector('#name').value = ''")
    page.write("#name", name)
    page.write("#password", PASSWORD)
    page.press("Enter", code=13)


def log_out(page: Page) -> None:
    page.click("#leave")
    page.wait("!document.querySelector('#login').hidden")


def test_an_analyst_runs_queries_in_a_browser(page: Page, shared: Served) -> None:
    """By keyboard alone, on a phone: the price before anything is spent, then the answer with ±, then the history.

    The page loads nothing from elsewhere, and what a column is called never becomes HTML.
    """
    spent = shared.spent()
    log_in(page, "ana")
    page.wait("document.querySelector('#sql')")
    page.write("#sql", "SEL")
    page.press("Tab", code=9)
    page.write("#sql", QUERY.removeprefix("SELECT"))
    page.wait("!document.querySelector('#ask').disabled")
    assert page.value("document.querySelector('#sql').value") == QUERY
    price = page.value("document.querySelector('#price').innerText")
    assert "Price: ε 0.1, charged to visits and visits for ana." in price
    assert "expected 95% half-width" in price
    assert shared.spent() == spent
    page.press("Enter", code=13, modifiers=2)
    page.wait("document.querySelector('#answer')")
    assert shared.spent() > spent
    cells = page.value(
        "[...document.querySelectorAll('#answer th, #answer td')].map((each) => each.innerText)"
    )
    assert cells[:4] == ["plan", "<b>n</b>", "c", "A"]
    assert all("±" in cell for cell in (*cells[4:6], *cells[7:9]))
    assert page.value("document.querySelectorAll('#answer b').length") == 0
    assert page.value("document.querySelectorAll('.chart .whisker').length") == 2
    page.wait("document.querySelector('#ask').innerText === 'Run, free'")
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.value(fits)
    for view, word in (("history", "<b>n</b>"), ("tables", "[0, 1000]"), ("budget", "visits for ana")):
        page.value(f"location.hash = {view!r}")
        page.wait(f"document.querySelector('#view').innerText.includes({word!r})")
        assert page.value(fits)
    log_out(page)
    assert page.value("document.querySelector('#view').innerText + sessionStorage.length") == "0"
    own = f"http://127.0.0.1:{shared.http}/"
    assert [url for url in page.requests if not url.startswith(own)] == []
    assert not any(PASSWORD in url or "session_" in url for url in page.requests)
    assert page.complaints == []


def test_first_view_has_an_example_and_the_tables(page: Page) -> None:
    """A click asks for its price; numbers are cut to their noise; what is wrong while it is written is no alarm."""
    page.value("location.hash = 'ask'")
    log_in(page, "bob")
    page.wait("document.querySelector('#example')")
    assert page.value("document.querySelector('.schema').innerText").count("visits") >= 2
    assert page.value("document.querySelector('#epsilon').type") == "number"
    page.click("#example")
    page.wait("!document.querySelector('#ask').disabled")
    assert "GROUP BY" in page.value("document.querySelector('#sql').value")
    page.click("#ask")
    page.wait("document.querySelector('#answer .noisy')")
    value, half = (
        page.value("document.querySelector('#answer .noisy').innerText").replace(",", "").split(" ±")
    )
    assert float(half) >= 100
    assert float(value) % 10 == 0
    page.value("document.querySelector('#sql').value = ''")
    page.write("#sql", "SELECT nothing_here FROM visits")
    page.wait("document.querySelector('#price .refusal.quiet')")
    assert page.value("document.querySelectorAll('#price [role=alert]').length") == 0
    page.value("location.hash = 'history'")
    page.wait("document.querySelector('#view').innerText.includes('ε 0.1')")
    page.complaints.clear()  # the browser's of the refusal
    log_out(page)


def test_an_auditor_oversees_in_a_browser(page: Page, shared: Served) -> None:
    """And asks nothing; a session that has ended asks for the password again."""
    log_in(page, "eve")
    page.wait("document.querySelector('#view').innerText.includes('data_version')")
    assert page.value("[...document.querySelectorAll('nav a')].map((each) => each.innerText)") == [
        "Tables",
        "Everyone",
    ]
    assert "visits for bob" in page.value("document.querySelector('#view').innerText")
    assert "Advice:" in page.value("document.querySelector('#view').innerText")
    assert page.value("document.documentElement.scrollWidth") == 390  # a digest is broken, and widens no page
    shared.door.api.context.authenticator.sessions = WebSessions()
    page.value("location.hash = 'tables'")
    page.wait("document.querySelector('#refused').innerText === 'The session has ended.'")
    assert page.value("document.querySelector('#view').innerText") == ""


def test_only_files_of_the_folder_are_served_and_loaded(shared: Served) -> None:
    for name, file in files.FILES.items():
        told = shared.ask(f"/page/{name}")
        assert (told.status, told.body, told.headers["content-type"]) == (200, file.content, file.type)
    told = shared.ask("/")
    assert told.body == files.FILES["index.html"].content
    rules = dict(rule.strip().split(" ", 1) for rule in told.headers["content-security-policy"].split(";"))
    assert (rules["default-src"], rules["script-src"], rules["connect-src"]) == ("'none'", "'self'", "'self'")
    assert (rules["frame-ancestors"], rules["form-action"]) == ("'none'", "'none'")
    for text in ("unsafe", "http:", "https:", "*"):
        assert text not in told.headers["content-security-policy"]
    for path in (
        "/page/../api.py",
        "/page/%2e%2e%2fapi.py",
        "/page/__init__.py",
        "/page/",
        "/page//etc/passwd",
    ):
        assert shared.ask(path).status == 404
    for name, file in files.FILES.items():
        if name.endswith(".js"):
            assert not any(word in file.content for word in (b"innerHTML", b"eval(", b"document.write"))


@pytest.fixture
def unslowed(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed logins are answered at once."""
    monkeypatch.setattr(shared.service.failed_logins, "note_failure", lambda _: 0.0)


@pytest.mark.usefixtures("unslowed")
def test_a_web_session_ends_with_its_password_user_or_logout(shared: Served) -> None:
    """A token, a session or another's password begins none; the log has no secret."""
    store = shared.service.users
    first, second, third = (begun(shared, "bob").json["session"] for _ in range(3))
    assert shared.ask("/v1/budget", token=first).status == 200
    assert shared.ask("/v1/session", method="DELETE", token=first).json["user"] == "bob"
    assert shared.ask("/v1/budget", token=first).status == 401
    assert shared.ask("/v1/budget", token=second).status == 200
    store.change_password("bob", PASSWORD + "2")
    assert [shared.ask("/v1/budget", token=each).status for each in (second, third)] == [401, 401]
    store.change_password("bob", PASSWORD)
    assert shared.ask("/v1/budget", token=third).status == 401
    assert begun(shared, "bob", "wrong").status == begun(shared, "nobody").status == 401
    for proof in (shared.token(), begun(shared).json["session"]):
        assert shared.ask("/v1/session", method="POST", token=proof).status == 401
    assert first.removeprefix(PREFIX) not in str(shared.logged)
    assert PASSWORD not in str(shared.logged)


@pytest.mark.usefixtures("unslowed")
def test_only_owners_and_auditors_see_all_entries_and_users(shared: Served) -> None:
    """Neither entries, users nor the policy are an analyst's to read; no secret is in them for anybody."""
    eve, ana = shared.token("eve"), begun(shared).json["session"]
    for path in ("/v1/entries", "/v1/users", "/v1/policy"):
        assert shared.ask(path, token=ana).code == "forbidden"
        told = shared.ask(path, token=eve)
        assert told.status == 200
        assert eve.rpartition("_")[2].encode() not in told.body
        assert b"SCRAM" not in told.body
    assert shared.ask("/v1/policy", token=eve).json["digest"] == shared.service.policy.compute_digest()
    (weak, *_) = shared.ask("/v1/policy", token=eve).json["advice"]
    assert weak.startswith("visits: ε 30 is weak")
    users = shared.ask("/v1/users", token=eve).json["users"]
    assert [(each["name"], each["role"]) for each in users] == [
        ("ana", "analyst"), ("bob", "analyst"), ("eve", "auditor"),
    ]  # fmt: skip


def test_web_sessions_end_by_time_and_number() -> None:
    now = [0.0]
    sessions, verifier = WebSessions(clock=lambda: now[0]), Verifier.from_password(PASSWORD)
    used, idle = sessions.begin_session("ana", verifier), sessions.begin_session("ana", verifier)
    while now[0] + IDLE < LONGEST:
        now[0] += IDLE
        assert sessions.find_session(used) == ("ana", verifier)
    assert sessions.find_session(idle) is None
    now[0] = LONGEST + 1
    assert sessions.find_session(used) is None
    many = [sessions.begin_session("ana", verifier) for _ in range(MOST_OF_ONE + 2)]
    other = sessions.begin_session("bob", verifier)
    assert [sessions.find_session(each) is None for each in many] == [True] * 2 + [False] * MOST_OF_ONE
    assert sessions.find_session(other) == ("bob", verifier)
