"""`herma memory facts`: exact answers to exact questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from herma.cli.context import CommandContext, HermaGroup, dry_run_option, scope_options, with_home
from herma.cli.encode import Json, encode
from herma.cli.output import short_when, when
from herma.errors import UsageError

if TYPE_CHECKING:
    from herma.facts.facts import Fact

_id = click.IntRange(1, 2**63 - 1)


@click.group(cls=HermaGroup, order="list ask set forget")
def facts() -> None:
    """See facts that memory states plainly: "my time zone", and what it was before.

    They follow MEMORY.md and USER.md, an undo included. The newest value holds; older ones stay in the history. If two
    disagree and neither is newer, nothing is answered.

    \b
    Examples:
      herma memory facts list
      herma memory facts ask "what is my time zone?"
      herma memory facts list "time zone"
      herma memory facts forget 3
    """


@facts.command("list")
@click.argument("attribute", required=False, metavar="[ATTRIBUTE|ID]")
@click.option("--subject", metavar="NAME", default="", help="Whose ATTRIBUTE; without it, everybody's.")
@scope_options
@with_home
def list_(context: CommandContext, attribute: str | None, subject: str) -> None:
    """List the facts that hold now, or every value that an ATTRIBUTE has had, the newest first; with an ID, show where
    that fact comes from.

    \b
    Examples:
      herma memory facts list
      herma memory facts list --project shop
      herma memory facts list birthday --subject anna
      herma memory facts list 3
    """
    if attribute is not None and attribute.isdecimal():
        _show(context, int(attribute))
        return
    if attribute is None:
        found = context.h.facts.list(scope=context.scope)
    else:
        found = context.h.facts.history(attribute, subject=subject, scope=context.scope)
    if context.json:
        context.print_json({"ok": True, "facts": [_as_json(one) for one in found]})
    elif found:
        _table(context, found)
    elif attribute is not None:
        context.line(
            f"No fact about {attribute!r}. `{context.command('memory', 'facts', 'list')}` lists the known ones."
        )
    else:
        add = context.command("memory", "add", "--target", "user", "My time zone is Europe/Berlin")
        context.line(f"No facts yet. An entry that states one plainly makes one: {add}")


@facts.command(short_help="Answer an exact question")
@click.argument("question", nargs=-1, required=True)
@scope_options
@with_home
def ask(context: CommandContext, question: tuple[str, ...]) -> None:
    """Answer an exact question, or the name of an attribute; without a certain answer, the exit code is 1.

    \b
    Examples:
      herma memory facts ask what is my time zone
      herma memory facts ask time zone
      herma memory facts ask "我的时区是什么？" --json
    """
    text = " ".join(question).strip()
    if not text:
        raise UsageError("The question is empty.", hint="For example: herma memory facts ask what is my time zone")
    known, scope = context.h.facts, context.scope
    fact = known.answer(text, scope) or known.get(text.rstrip("?？ "), scope=scope)
    if context.json:
        context.print_json({"ok": True, "fact": None if fact is None else _as_json(fact)})
    if fact is None:
        context.line(f"No certain answer. To search instead: {context.command('search', text)}")
        context.exit(1)
    context.line(fact.value)
    context.line(f"({fact.subject} · {fact.attribute}, since {when(fact.valid_from)}, {_source(fact)})")


def _show(context: CommandContext, fact: int) -> None:
    """Show the source of a fact."""
    one = _find(context, fact)
    if context.json:
        context.print_json({"ok": True, "fact": _as_json(one)})
        return
    lines = [
        ("fact", _line(one)),
        ("since", when(one.valid_from)),
        ("until", when(one.until) if one.until else ""),
        ("forgotten", when(one.forgotten) if one.forgotten else ""),
        ("text", one.text),
        ("source", _source(one)),
        ("project", one.scope.project),
        ("user", one.scope.user),
    ]
    context.fields(lines)


@facts.command("set", short_help="State a fact yourself")
@click.argument("attribute")
@click.argument("value")
@click.option("--subject", metavar="NAME", default="user", show_default=True, help="Whose: user, project, or a name.")
@scope_options
@with_home
def set_(context: CommandContext, attribute: str, value: str, subject: str) -> None:
    """State a fact yourself. It answers questions; unlike an entry of memory, it is not part of the prompt.

    \b
    Examples:
      herma memory facts set "time zone" Europe/Berlin
      herma memory facts set birthday "3 May" --subject anna
    """
    fact = context.h.facts.state(subject, attribute, value, scope=context.scope)
    if context.json:
        context.print_json({"ok": True, "fact": _as_json(fact)})
        return
    context.line(_line(fact))
    context.line(f"To undo it: {context.command('memory', 'facts', 'forget', str(fact.id))}")


@facts.command(short_help="Stop using these facts")
@click.argument("numbers", metavar="ID…", nargs=-1, required=True, type=_id)
@click.option("--undo", is_flag=True, help="Use them again.")
@dry_run_option
@with_home
def forget(context: CommandContext, numbers: tuple[int, ...], undo: bool, dry_run: bool) -> None:
    """Stop using these facts and older values of the same. The entries that state them stay where they are.

    \b
    Examples:
      herma memory facts forget 3 --dry-run
      herma memory facts forget 3
      herma memory facts forget 3 --undo
    """
    known = [_find(context, number) for number in numbers]
    if dry_run:
        done = [one for one in known if (one.forgotten is not None) == undo]
    else:
        done = context.h.facts.unforget(numbers) if undo else context.h.facts.forget(numbers)
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, "facts": [_as_json(one) for one in done]})
        return
    words = ("Would be used again", "Used again") if undo else ("Would be forgotten", "Forgotten")
    for one in done:
        context.line(f"{words[0] if dry_run else words[1]}: {_line(one)}")
    if done and not dry_run and not undo:
        ids = [str(one.id) for one in done]
        context.line(f"To undo it: {context.command('memory', 'facts', 'forget', '--undo', *ids)}")


def _find(context: CommandContext, number: int) -> Fact:
    fact = context.h.facts.find(number)
    if fact is None:
        hint = f"`{context.command('memory', 'facts', 'list')}` lists the ids."
        raise UsageError(f"There is no fact {number}.", hint=hint, code="not_found")
    return fact


def _table(context: CommandContext, found: Sequence[Fact]) -> None:
    rows = [
        (
            one.id,
            one.subject,
            one.attribute,
            short_when(one.valid_from),
            "forgotten" if one.forgotten else short_when(one.until) if one.until else "now",
            one.value,
        )
        for one in found
    ]
    context.table(["id", "whose", "what", "since", "until", "value"], rows, drop=("whose", "until", "since"), cut=True)


def _line(one: Fact) -> str:
    return f"{one.subject} · {one.attribute} = {one.value}"


def _source(one: Fact) -> str:
    sources = {"curated": f"memory, change m{one.change}", "user": "stated by you", "review": "a review"}
    return sources[one.source] + (f", session {one.session}" if one.session else "")


def _as_json(one: Fact) -> Json:
    return encode(one, omit=["target"])
