"""`notifications` as a person types it, on their own server."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.cli.person import Person
from tests.ports import free_port


def test_choosing_showing_and_ending(newcomer: Callable[[str], Person]) -> None:
    person = newcomer("ann")
    person.home.mkdir(parents=True, exist_ok=True)
    (person.home / "server.toml").write_text("[notifications]\nwebhook_private = true\n")
    url = f"http://127.0.0.1:{free_port()}/hook"
    done = person.types("notifications", "set", "--events=failed,ended", f"--webhook={url}")
    assert done.code == 0, done.err
    first, second, third, secret = done.out.splitlines()
    assert (first, second, third) == ("events: ended,failed", "mail: 0", f"webhook: {url}")
    assert secret.startswith("webhook_secret: whsec_")
    assert "only shown once" in done.err
    shown = person.types("notifications", "show", "--json").json
    assert shown["webhook_secret"] is None
    assert shown["notifications"]["events"] == ["ended", "failed"]
    tried = person.types("notifications", "test")
    assert tried.out.startswith("webhook: not delivered: cannot reach 127.0.0.1")
    assert tried.code == 1
    ended = person.types("notifications", "set", "--webhook=", "--events=")
    assert (ended.code, ended.out) == (0, "events: \nmail: 0\nwebhook: \n")


def test_wrong_choices_are_told(newcomer: Callable[[str], Person]) -> None:
    person = newcomer("ann")
    cases = {
        ("set",): ("give --events, --mail or --webhook", 2),
        ("set", "--events=lunch"): ("lunch is not an event; the events are: started, ended", 2),
        ("set", "--mail=1"): ("this server sends no mail", 2),
        ("set", "--webhook=https://10.0.0.1/"): ("an address of a private network", 1),
        ("set", "--webhook=http://a.example/"): ("is not https", 1),
        ("test",): ("neither mail nor a webhook is configured", 1),
    }
    for words, (sentence, code) in cases.items():
        done = person.types("notifications", *words)
        assert sentence in done.err, (words, done.err)
        assert done.code == code, words
