"""What `pending`, `approve` and `reject` share, whatever it is that waits: choosing by number, and the telling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from herma.errors import UsageError

if TYPE_CHECKING:
    from herma.cli.frame import Context

Command = Callable[..., str]
"""Words to a command line that works on the same home."""


class Numbered(Protocol):
    @property
    def id(self) -> int: ...


N = TypeVar("N", bound=Numbered)


def tell_how_to_decide(context: Context, waiting: Sequence[Numbered], many: str, command: Command) -> None:
    context.line()
    context.line(f"{many} waiting. Decide with:")
    number = str(waiting[0].id)
    for words in (("approve", number), ("reject", number), ("approve", "all")):
        context.line(f"  {command(*words)}")


def chosen(waiting: Sequence[N], ids: Sequence[str], command: Command) -> list[N]:
    """The proposals meant. An unknown number is said before anything is decided."""
    if [word.lower() for word in ids] == ["all"]:
        return list(waiting)
    known = {str(item.id): item for item in waiting}
    wanted = dict.fromkeys(ids)
    unknown = [word for word in wanted if word not in known]
    if unknown:
        raise UsageError(
            f"Nothing with the number {unknown[0]} is waiting; nothing was decided.",
            hint=f"`{command('pending')}` lists what is waiting.",
        )
    return [known[word] for word in wanted]


def tell_approved(context: Context, results: Sequence[dict[str, Any]]) -> None:
    """The end of an approval; a refusal among the results makes the exit code 1."""
    refused = any(not result["ok"] for result in results)
    if context.json:
        context.print_json({"ok": not refused, "results": results})
    if not results:
        context.line("Nothing is waiting.")
    if refused:
        context.exit(1)


def tell_rejected(context: Context, rejected: Sequence[N], as_json: Callable[[N], dict[str, Any]]) -> None:
    if context.json:
        context.print_json({"ok": True, "rejected": [as_json(item) for item in rejected]})
    for item in rejected:
        context.line(f"{item.id}: rejected, and not proposed again.")
    if not rejected:
        context.line("Nothing is waiting.")
