"""Who may do what: sessions, roles, tokens, origins, names, and what every answer says to browsers."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from moldau.console.app import ROUTES, application
from moldau.console.failures import ConsoleError
from moldau.console.security.sessions import AGE_S_MAX, FAILURES_MAX, IDLE_S_MAX, SESSIONS_MAX, Sessions
from moldau.console.security.users import EDITOR, READER, User, new_user, read_users, who, write_users
from moldau.console.server import check
from moldau.console.settings import Settings
from moldau.console.web import login
from moldau.testing.brokers import BrokerInThread
from tests.console.consoles import ORIGIN, Asking, asking

PASSWORD = "correct horse"
PATHS = [
    route.path.replace("{topic}", "t")
    .replace("{partition:int}", "0")
    .replace("{offset:int}", "0")
    .replace("{group:name}", "g")
    .replace("{name}", "p")
    .replace("{id}", "i")
    for route in ROUTES
    if isinstance(route, Route) and route.methods and "GET" in route.methods and route.path != "/login"
]
CHANGES = [
    route.path.replace("{topic}", "t").replace("{group:name}", "g").replace("{name}", "p")
    for route in ROUTES
    if isinstance(route, Route)
    and route.methods
    and "POST" in route.methods
    and route.path not in ("/login", "/logout")
]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.json"
    people = [new_user("anna", EDITOR, PASSWORD), new_user("rudolf", READER, PASSWORD)]
    write_users(path, {each.name: each for each in people})
    return path


@pytest.fixture(scope="module")
def guarded(kafka: BrokerInThread, users: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with asking(kafka.bootstrap, tmp_path_factory.mktemp("guarded"), users=users) as running:
        yield running


@pytest.fixture(autouse=True)
def _logged_out(guarded: Asking) -> None:
    guarded.client.cookies.clear()


def log_in(guarded: Asking, name: str, password: str = PASSWORD) -> int:
    form = {"name": name, "password": password, "next": "/topics"}
    answer = guarded.client.post("/login", data=form, headers={"Origin": ORIGIN}, follow_redirects=False)
    return answer.status_code


@pytest.mark.parametrize("path", PATHS)
def test_no_page_and_no_json_answers_without_a_session(guarded: Asking, path: str) -> None:
    page = guarded.client.get(path, headers={"Accept": "text/html"}, follow_redirects=False)
    assert page.status_code == 303
    assert page.headers["location"].startswith("/login?next=")
    assert page.content == b""
    for address, accept in ((path, "application/json"), (f"{path}?format=json", "*/*")):
        answer = guarded.client.get(address, headers={"Accept": accept}, follow_redirects=False)
        assert (answer.status_code, answer.json()) == (401, {"error": "log in first"})


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_without_a_session_a_token_or_the_right_is_refused(guarded: Asking, path: str) -> None:
    headers = {"Origin": ORIGIN, "Accept": "application/json"}
    assert guarded.client.post(path, data={}, headers=headers).status_code == 401
    log_in(guarded, "rudolf")
    assert guarded.client.post(path, data={}, headers=headers).status_code == 403, "a reader"
    guarded.client.cookies.clear()
    log_in(guarded, "anna")
    refused = guarded.client.post(path, data={"csrf": "guess"}, headers=headers)
    assert refused.status_code in (403, 404), "no token, or nothing there to change"
    assert guarded.client.post(path, data={}, headers={**headers, "Origin": "http://evil.example"}).status_code == 403
    cross = guarded.client.post(path, data={}, headers={**headers, "Sec-Fetch-Site": "cross-site"})
    assert cross.status_code == 403


def test_a_reader_sees_pages_without_forms_and_an_editor_changes_things(guarded: Asking) -> None:
    assert log_in(guarded, "rudolf") == 303
    page = guarded.page("/topics")
    assert "read only" in page
    assert "Create a topic" not in page
    guarded.client.cookies.clear()
    assert log_in(guarded, "anna") == 303
    assert guarded.post("/topics", {"name": "made-by-anna"})["done"]
    path = guarded.console.settings.audit_log
    assert path is not None
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["user"], last["change"], last["topic"]) == ("anna", "create topic", "made-by-anna")
    assert (path.stat().st_mode & 0o777) == 0o600


def test_the_cookie_is_strict_and_ends_with_the_logout(guarded: Asking) -> None:
    answer = guarded.client.post(
        "/login", data={"name": "anna", "password": PASSWORD}, headers={"Origin": ORIGIN}, follow_redirects=False
    )
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    token = guarded.client.cookies["moldau_console"]
    guarded.client.post("/logout", headers={"Origin": ORIGIN})
    guarded.client.cookies.clear()
    after = guarded.client.get("/", headers={"Cookie": f"moldau_console={token}"}, follow_redirects=False)
    assert after.status_code == 303


def test_a_login_goes_only_to_our_own_pages(guarded: Asking) -> None:
    for bad in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        form = {"name": "anna", "password": PASSWORD, "next": bad}
        answer = guarded.client.post("/login", data=form, headers={"Origin": ORIGIN}, follow_redirects=False)
        assert answer.headers["location"] == "/"


def test_guesses_are_stopped(kafka: BrokerInThread, users: Path, tmp_path: Path) -> None:
    with asking(kafka.bootstrap, tmp_path, users=users) as running:
        codes = [log_in(running, name, "wrong password") for name in ("anna", "nobody") * 5]
        assert set(codes[:9]) == {403}
        assert log_in(running, "anna") == 429, "also the right password waits"


def test_guesses_that_come_at_once_are_stopped_too(
    kafka: BrokerInThread, users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def count(known: Mapping[str, User], name: str, password: str) -> User | None:
        hashed.append(name)
        return who(known, name, password)

    monkeypatch.setattr(login, "who", count)
    with asking(kafka.bootstrap, tmp_path, users=users) as running, ThreadPoolExecutor(40) as threads:
        codes = list(threads.map(lambda _: log_in(running, "anna", "wrong password"), range(40)))
    assert codes.count(429) >= 40 - FAILURES_MAX - login.AT_ONCE_MAX
    assert len(hashed) < FAILURES_MAX + login.AT_ONCE_MAX


def test_a_user_who_is_removed_or_changed_has_no_session_any_more(kafka: BrokerInThread, tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    anna, boris = new_user("anna", EDITOR, PASSWORD), new_user("boris", EDITOR, PASSWORD)
    write_users(path, {"anna": anna, "boris": boris})
    with asking(kafka.bootstrap, tmp_path, users=path) as running:
        for now in ({"boris": boris}, {"anna": new_user("anna", READER, PASSWORD), "boris": boris}):
            assert log_in(running, "anna") == 303
            write_users(path, now)
            assert running.client.get("/topics", follow_redirects=False).status_code == 303
            write_users(path, {"anna": anna, "boris": boris})
        assert log_in(running, "anna") == 303
        path.write_text("{")
        assert running.client.get("/topics").status_code == 200, "somebody is writing it just now"


def test_a_new_login_ends_the_session_before_it(guarded: Asking) -> None:
    log_in(guarded, "anna")
    before = guarded.client.cookies["moldau_console"]
    log_in(guarded, "rudolf")
    guarded.client.cookies.clear()
    answer = guarded.client.get("/", headers={"Cookie": f"moldau_console={before}"}, follow_redirects=False)
    assert answer.status_code == 303


def test_behind_a_proxy_with_tls_the_cookie_goes_by_tls_only(guarded: Asking) -> None:
    form = {"name": "anna", "password": PASSWORD}
    headers = {"Origin": ORIGIN, "X-Forwarded-Proto": "https"}
    answer = guarded.client.post("/login", data=form, headers=headers, follow_redirects=False)
    assert "secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_leads_here_and_makes_nothing_work(console: Asking, site: str) -> None:
    """Without a login any page of the web could hold all streams, or have whole topics read."""
    link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert console.client.get("/topics", headers=link).status_code == 200
    for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe"), ("no-cors", "script")):
        asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        assert console.client.get("/topics", headers=asked).status_code == 403
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    assert console.client.get("/topics", headers=own).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[::1", "127.0.0.1.nip.io"])
def test_a_name_that_leads_here_is_not_enough(console: Asking, host: str) -> None:
    assert console.client.get("/", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:9480", "127.0.0.1:80", "[::1]:9480", "LOCALHOST"])
def test_this_machine_is_served(console: Asking, host: str) -> None:
    assert console.client.get("/", headers={"Host": host}).status_code == 200


def test_every_answer_has_a_strict_policy(console: Asking) -> None:
    for path in ("/", "/nowhere", "/topics?format=json", "/static/console.js"):
        headers = console.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert policy.startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    for path in ("/", "/topics", "/groups", "/letters", "/transactions"):
        page = console.page(path)
        assert "style=" not in page
        assert "onclick" not in page
        assert "<script>" not in page


def test_an_origin_that_is_none_is_another_site(console: Asking) -> None:
    for origin in ("http://[", "null", "", "http://localhost.evil.example"):
        answer = console.client.post("/topics", data={"csrf": console.token()}, headers={"Origin": origin})
        assert answer.status_code == 403, origin


def test_a_page_that_fails_is_told_so_under_the_same_policy(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.console.sampler, "snapshot", None)
    answer = console.client.get("/groups")
    assert answer.status_code == 500
    assert answer.text == "an error of the console: its log says more\n"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_form_that_is_too_large_is_refused(console: Asking) -> None:
    big = {"csrf": console.token(), "name": "x" * 5_000_000}
    assert console.client.post("/topics", data=big, headers={"Origin": ORIGIN}).status_code == 413
    form = {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
    told_nothing = console.client.post("/topics", content=iter([b"x" * 1_000_000] * 5), headers=form)
    assert told_nothing.status_code == 413, "also where no header says how long it is"


def test_other_methods_are_refused(console: Asking) -> None:
    assert console.client.delete("/topics/x").status_code == 405


def test_read_only_means_nobody(kafka: BrokerInThread, tmp_path: Path) -> None:
    with asking(kafka.bootstrap, tmp_path, read_only=True) as running:
        assert "Create a topic" not in running.page("/topics")
        answer = running.client.post("/topics", data={"name": "x"}, headers={"Origin": ORIGIN})
        assert answer.status_code == 403
        assert "read-only" in answer.text


def test_nothing_is_changed_that_cannot_be_noted(kafka: BrokerInThread, tmp_path: Path) -> None:
    with asking(kafka.bootstrap, tmp_path) as running:
        path = tmp_path / "audit.jsonl"
        path.unlink()
        path.mkdir()
        assert "audit log" in running.post("/topics", {"name": "unnoted"}, 503)["error"]
        running.look()
        assert running.json("/topics?q=unnoted")["rows"] == []


def test_other_machines_need_a_login(users: Path) -> None:
    with pytest.raises(ConsoleError, match="add-user"):
        check(Settings("b", {}, host="0.0.0.0"))
    check(Settings("b", {}, host="0.0.0.0", users=users))
    check(Settings("b", {}, host="::1"))
    app = application(Settings("b", {}, host="0.0.0.0", users=users, allowed_hosts=("console.example.com:8443",)))
    client = TestClient(app, base_url="http://console.example.com")
    assert client.get("/login").status_code == 200
    assert client.get("/login", headers={"Host": "10.0.0.7:9480"}).status_code == 200
    assert client.get("/login", headers={"Host": "evil.example"}).status_code == 421


def test_sessions_end_by_age_idleness_and_number() -> None:
    now = 0.0
    sessions = Sessions(lambda: now)
    token = sessions.begin("anna", EDITOR)
    for _ in range(int(AGE_S_MAX / IDLE_S_MAX)):
        now += IDLE_S_MAX
        assert sessions.find(token)
    now += 1
    assert sessions.find(token) is None
    tokens = [sessions.begin("anna", EDITOR) for _ in range(SESSIONS_MAX + 1)]
    assert sessions.find(tokens[0]) is None
    assert sessions.find(tokens[-1])
    now += IDLE_S_MAX + 1
    assert sessions.find(tokens[-1]) is None


def test_the_file_of_users_is_private_and_has_no_password(users: Path) -> None:
    assert (users.stat().st_mode & 0o777) == 0o600
    assert PASSWORD not in users.read_text()
    known = read_users(users)
    assert who(known, "anna", PASSWORD) is not None
    assert who(known, "anna", PASSWORD + "!") is None
    assert who(known, "", "") is None


def test_add_user_reads_a_password_and_complains_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "u.json"

    def add(name: str, password: str, *more: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "moldau", "console", "add-user", name, "--users", str(path), *more]
        return subprocess.run(command, input=f"{password}\n", capture_output=True, text=True, timeout=30, check=False)

    assert add("anna", PASSWORD, "--role", "editor").stdout == "anna is added: editor\n"
    assert add("anna", PASSWORD).stdout == "anna is changed: reader\n"
    short = add("rudolf", "short")
    assert (short.returncode, short.stderr) == (1, "error: a password has 8 to 1024 characters\n")
    path.write_text("{")
    assert "is no file of users" in add("rudolf", PASSWORD).stderr
