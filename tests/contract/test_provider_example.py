"""The provider of the how-to keeps what every provider must."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from herma import MemoryProvider
from herma.testing.contracts import ProviderContract

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-provider.md"


def example() -> type[MemoryProvider]:
    code = re.search(r"write_text\('''\n(.*?)'''\)", PAGE.read_text("utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1].replace("\\\\n", "\\n"), names)  # the page's own example
    found: type[MemoryProvider] = names["Notes"]
    return found


class TestExample(ProviderContract):
    @pytest.fixture
    def provider(self) -> MemoryProvider:
        return example()()


class TestThatDoesTheLeast(ProviderContract):
    @pytest.fixture
    def provider(self) -> MemoryProvider:
        class Least(MemoryProvider):
            name = "least"

            def is_available(self) -> bool:
                return True

            def initialize(self, session_id: str, **kwargs: Any) -> None:
                pass

            def get_tool_schemas(self) -> list[dict[str, Any]]:
                return []

        return Least()


class TestContractFindsWhatIsWrong:
    """The suite is itself tried on a provider that breaks its promises."""

    class Careless(MemoryProvider):
        name = "careless"

        def __init__(self) -> None:
            self.asked = 0

        def is_available(self) -> bool:
            return True

        def initialize(self, session_id: str) -> None:  # type: ignore[override]
            self.session_id = session_id

        def get_tool_schemas(self) -> list[dict[str, Any]]:
            return [{"name": "memory"}]

        def system_prompt_block(self) -> str:
            self.asked += 1
            return f"Asked {self.asked} times."

        def prefetch(self, query: str, *, session_id: str = "") -> str:
            return None  # type: ignore[return-value]

        def on_session_end(self, messages: Any) -> None:
            messages[0]["content"] = "changed"

    def test_it_does(self, tmp_path: Path) -> None:
        contract = ProviderContract()
        careless = self.Careless()
        careless.initialize("s-1")
        for broken in (
            contract.test_its_tools_are_schemas,
            contract.test_its_block_stays_the_same,
            contract.test_a_whole_session,
        ):
            with pytest.raises(AssertionError):
                broken(careless)
        with pytest.raises(TypeError):
            contract.test_it_takes_what_it_does_not_know(careless, tmp_path)
