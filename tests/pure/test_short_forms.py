"""What people say in short, in words or in another language, and a model writes out, is not made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.review.gate import Abbreviations, GroundingIndex, Known, is_foreign, judge, numbers, stands_for
from herma.types import Message

FAITHFUL = [
    ("i write everything in js, no ts please", "User writes code in JavaScript and does not want TypeScript."),
    ("we're on k8s for prod", "The production environment runs on Kubernetes."),
    ("our db is pg 15", "The project's database is PostgreSQL 15."),
    ("I live in NYC", "User lives in New York City."),
    ("i'm from the uk", "User is from the United Kingdom."),
    ("we deploy to gcp", "The project deploys to Google Cloud Platform."),
    ("i use a mac with vscode", "User works on macOS with Visual Studio Code."),
    ("my editor is nvim", "The user's editor is Neovim."),
    ("we moved off jenkins to gh actions", "The project uses GitHub Actions instead of Jenkins for CI."),
    ("py 3.12 only", "The project supports Python 3.12 only."),
    ("use python three twelve", "The project uses Python 3.12."),
    ("i'm on win11", "User is on Windows 11."),
    ("tf for infra", "Infrastructure of the project is managed with Terraform."),
    ("we run on rpi4", "The project runs on a Raspberry Pi 4."),
    ("we follow semver", "The project follows Semantic Versioning."),
    ("prices are in usd", "Prices of the shop are in US Dollars."),
    ("use utf8", "Files are encoded in UTF-8."),
    ("the timeout must be thirty seconds", "The timeout is 30 seconds."),
    ("limit uploads to twenty-five megabytes", "Uploads are limited to 25 MB."),
    ("max line length is a hundred and twenty", "The maximum line length is 120."),
    ("budget is two and a half thousand euros", "The budget of the project is 2500 euros."),
    ("answers under 1.5k tokens", "Answers to the user should be under 1500 tokens."),
    ("the amount is 12,500 euros", "The amount is 12500 euros."),
    ("port is eighty eighty", "The server listens on port 8080."),
    ("i was born nineteen eighty-four", "The user was born in 1984."),
    ("we are iso twenty-seven thousand and one certified", "The company is certified for ISO 27001."),
    ("half the team works remote", "The share of remote work in the team is 50%."),
    ("上传最多三十个文件", "Uploads are limited to 30 files."),
    ("Ich wohne in München", "User lives in Munich."),
    ("antworte bitte auf deutsch", "User wants answers in German."),
    ("J'habite à Genève", "The user lives in Geneva."),
    ("Vivo en Sevilla y hablo español", "User lives in Seville and speaks Spanish."),
    ("我住在北京", "User lives in Beijing."),
    ("меня зовут Иван", "The user's name is Ivan."),
    ("der kunde heißt müller gmbh", "The customer is called Mueller GmbH."),
]
MADE_UP = [
    ("my name is Anna", "The user's name is Anna Schmidt."),
    ("run the js thing", "The project uses Jenkins and Sonar."),
    ("we live on the coast, it is nice", "The user lives in Ontario."),
    ("is it in the list", "The user comes from Israel."),
    ("the tests take thirty seconds", "Tests of the project take 45 seconds."),
    ("there are two ways", "The limit is 2222 requests."),
    ("one of us was there at nine", "The latency is 190 ms."),
    ("test the pg thing", "The project uses Prometheus and Grafana."),
    ("deploy it please", "The project deploys to Amazon Web Services."),
    ("we met at the café in the old town", "The user works at Google."),
]


def verdict(said: str, text: str) -> str:
    refusal = judge(text, Known(said=(Message("user", said),), grounds=GroundingIndex([said], [said])))
    return refusal.reason if refusal else ""


@pytest.mark.parametrize(("said", "text"), FAITHFUL)
def test_what_was_said_in_short_or_in_other_words_is_kept(said: str, text: str) -> None:
    assert verdict(said, text) == ""


@pytest.mark.parametrize(("said", "text"), MADE_UP)
def test_what_nobody_said_is_not(said: str, text: str) -> None:
    assert verdict(said, text) == "unfounded"


def test_a_time_limit_is_no_failure_and_one_that_was_hit_is() -> None:
    assert verdict("", "The timeout of requests is ten seconds.") == ""
    assert verdict("", "The last request ended with a timeout.") == "transient"


@given(st.lists(st.from_regex(r"[A-Z][a-z]{1,9}", fullmatch=True), min_size=2, max_size=5))
def test_initials_stand_for_a_name(words: list[str]) -> None:
    parts = [word.casefold() for word in words]
    assert stands_for("".join(part[0] for part in parts), parts, several=True)


@given(st.text(max_size=200), st.text(min_size=1, max_size=20))
def test_any_text_is_heard(said: str, name: str) -> None:
    words = name.split() or ["x"]
    answers = [(heard.names(words), heard.counts(name)) for heard in (Abbreviations([said]), Abbreviations([said]))]
    assert answers[0] == answers[1]
    assert is_foreign(said.casefold().split()) in (True, False)


@given(st.lists(st.sampled_from(("thirteen", "four", "ten", "三", "hundred", "x", "and")), max_size=40))
def test_a_number_fills_no_more_places_than_were_said(words: list[str]) -> None:
    assert all(digits and places <= 4 * len(words) for digits, places in numbers(words))
