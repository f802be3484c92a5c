"""Which models the settings name: roles, keys, what is said where there is none, the meter for background work."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from herma import Herma
from herma.errors import ConfigError, ModelCancelled, ModelError, SpendRefused, UsageError
from herma.models.models import MeteredModel
from herma.testing import Answer, FixedClock, ScriptedModel
from herma.types import Usage

HI = [{"role": "user", "content": "hi"}]


def opened(home: Path, **flags: Any) -> Herma:
    return Herma.open(home, flags={name.replace("__", "."): value for name, value in flags.items()}, clock=FixedClock())


def test_without_a_model_it_says_what_one_would_add(home: Path) -> None:
    with opened(home) as h:
        assert h.model() is h.model("auxiliary", purpose="review") is None
        assert "(model.url and model.name: empty)" in h.models.why_not()
        assert "herma chat" in h.models.why_not("auxiliary")
    with opened(home, model__name="m") as h:  # a name alone is what sessions are counted by
        assert h.model() is None
        assert "(model.url: empty)" in h.models.why_not()
    with opened(home, model__url="ollama") as h:
        assert "(model.name: empty)" in h.models.why_not()


def test_the_main_model_answers(home: Path, server: ScriptedModel) -> None:
    server.then("Hello.")
    with opened(home, model__url=server.url, model__name="m", model__max_tokens=9) as h:
        model = h.model()
        assert model is not None
        assert h.models.why_not() == ""
        assert (model.name, model.reply(HI).text) == ("m", "Hello.")
        assert h.model() is model
    assert server.requests[0].body["max_tokens"] == 9
    with pytest.raises(UsageError, match="closed"):
        h.model()


def test_a_model_that_fails_is_counted_for_the_doctor_and_one_that_was_given_up_is_not(
    home: Path, server: ScriptedModel
) -> None:
    with opened(home, model__url=server.url, model__name="m", model__retries=0) as h:
        main, other = h.model(), h.model("auxiliary", purpose="tidy")
        assert main is not None
        assert other is not None
        server.then(Answer(status=500), Answer(status=401, error="no"), Answer(broken_after=1, text="x" * 90))
        server.then(Answer(status=500))
        for model in (main, other, main):
            with pytest.raises(ModelError):
                model.reply(HI)
        assert h.models.ask("tidy", "Say hello.", "Hi.") == "", "a failure is no answer"
        given_up = threading.Event()
        given_up.set()
        with pytest.raises(ModelCancelled):
            main.reply(HI, cancel=given_up)
        (failed,) = h.doctor().failures
    assert (failed.name, failed.times, failed.what) == ("model m", 4, "tidy")


def test_the_auxiliary_model_falls_back_key_by_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIN_KEY", "secret")
    main = {"model__url": "https://one.example/v1", "model__name": "big", "model__api_key_env": "MAIN_KEY"}
    with opened(home, **main) as h:
        assert h.models.endpoint("auxiliary") == h.models.endpoint("main")
    with opened(home, **main, auxiliary__name="small") as h:
        where = h.models.endpoint("auxiliary")
        assert where is not None
        assert (where.url, where.name, where.key) == ("https://one.example/v1", "small", "secret")
    with opened(home, **main, auxiliary__url="http://127.0.0.1:1/v1") as h:  # another server never gets that key
        where = h.models.endpoint("auxiliary")
        assert where is not None
        assert (where.name, where.key, where.section) == ("big", "", "auxiliary")


@pytest.mark.parametrize("wrong", ["sk-abc123", "MY KEY", "K=v", "b7f3a9c2e8d14f60a5b9c3d7e1f20846"])
def test_a_key_in_the_configuration_is_refused_and_not_repeated(home: Path, wrong: str) -> None:
    flags = {"model__url": "openai", "model__name": "m", "model__api_key_env": wrong}
    with opened(home, **flags) as h, pytest.raises(ConfigError, match="name of a variable") as caught:
        h.model()
    assert wrong not in f"{caught.value} {caught.value.hint}"


def test_nobodys_key_goes_to_an_unknown_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with opened(home, model__url="https://elsewhere.example/v1", model__name="m") as h:
        where = h.models.endpoint()
        assert where is not None
        assert (where.key, where.key_variable) == ("", "")
    with opened(home, model__url="openai", model__name="m") as h:
        where = h.models.endpoint()
        assert where is not None
        assert where.key == "secret"


def test_background_work_is_metered_whatever_the_role(home: Path, server: ScriptedModel) -> None:
    server.then(*[Answer("x", usage=Usage(10, 5))] * 3)
    flags = {"model__url": server.url, "model__name": "m", "prices__by_model": "m=1/10", "spend__daily_tokens": 5000}
    with opened(home, **flags) as h:
        for role in ("auxiliary", "main"):
            model = h.model(role, purpose="review")
            assert isinstance(model, MeteredModel)
            model.reply(HI)
        spent = h.models.spending().spent_today["review"]
        assert (spent.calls, spent.tokens, spent.unpriced) == (2, 30, 0)
        assert spent.usd == pytest.approx(120e-6)
        assert h.cost().total.calls == 0  # the ledger of sessions is another book
        tidy = h.model("auxiliary", purpose="tidy")
        assert tidy is not None
        with pytest.raises(SpendRefused):
            tidy.reply(HI, max_tokens=5000)
    assert len(server.requests) == 2
    with opened(home, **flags) as h:
        assert h.models.spending().total_today.calls == 2


def test_background_work_names_its_purpose(home: Path) -> None:
    with opened(home) as h:
        with pytest.raises(UsageError, match="purpose"):
            h.model("auxiliary")
        with pytest.raises(UsageError, match="'fun' is not a purpose"):
            h.model("auxiliary", purpose="fun")
        with pytest.raises(UsageError, match="role"):
            h.model("third")  # type: ignore[arg-type]


def test_the_doctor_looks_at_models_without_asking_them(
    home: Path, server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(**flags: Any) -> list[tuple[str, str]]:
        with opened(home, **flags) as h:
            return [(check.state, check.sentence) for check in h.doctor().checks if check.name == "model"]

    assert found() == []
    ((state, sentence),) = found(model__url=server.url, model__name="m")
    assert (state, "is set" in sentence) == ("ok", True)
    assert [state for state, _ in found(model__url=server.url, model__name="m", auxiliary__name="n")] == ["ok", "ok"]
    ((state, sentence),) = found(model__url=server.url, model__name="m", model__api_key_env="MY_KEY")
    assert (state, "MY_KEY" in sentence) == ("warning", True)
    assert [state for state, _ in found(model__url="nowhere", model__name="m")] == ["problem"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ((state, sentence),) = found(model__url=server.url, model__name="m")
    assert (state, "not installed" in sentence) == ("warning", True)
    assert server.requests == []
