"""`herma facts`: exact answers to exact questions."""

from __future__ import annotations

from collections.abc import Sequence

import click

from herma.cli.frame import HermaGroup
from herma.cli.output import Json, count, iso, short_when, when
from herma.errors import UsageError
from herma.facts.facts import Fact
from herma.transcript.cli import Desk, dry_run_option, with_sessions, write_fields, write_lines
from herma.types import Scope


class FactsGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "list ask show history set forget unforget rebuild"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=FactsGroup)
def facts() -> None:
    """See facts that memory states plainly: "my time zone", and what it was before.

    They follow MEMORY.md and USER.md by themselves, an undo included. The newest value holds; older ones stay in the
    history. Where two disagree and neither is newer, nothing is answered.

    \b
    Examples:
      herma facts list
      herma facts ask "what is my time zone?"
      herma facts history "time zone"
      herma facts forget 3
    """


_project = click.option("--project", metavar="NAME", help="As a session of this project sees it.")
_user = click.option("--user", metavar="ID", help="As a session of this user sees it.")


@facts.command("list")
@_project
@_user
@with_sessions
def list_(desk: Desk, project: str | None, user: str | None) -> None:
    """List the facts that hold now.

    \b
    Examples:
      herma facts list
      herma facts list --project shop
    """
    found = desk.h.facts.list(scope=_scope(project, user))
    if desk.context.json:
        desk.context.print_json({"ok": True, "facts": [_as_json(one) for one in found]})
        return
    if not found:
        add = desk.command("memory", "add", "--target", "user", "My time zone is Europe/Berlin")
        desk.context.line(f"No facts yet. An entry that states one plainly makes one: {add}")
        return
    _table(desk, found)


@facts.command(short_help="Answer an exact question")
@click.argument("question", nargs=-1, required=True)
@_project
@_user
@with_sessions
def ask(desk: Desk, question: tuple[str, ...], project: str | None, user: str | None) -> None:
    """Answer an exact question, or the bare name of what is asked for; or say that there is no certain answer (exit
    code 1).

    \b
    Examples:
      herma facts ask what is my time zone
      herma facts ask time zone
      herma facts ask "我的时区是什么？" --json
    """
    text = " ".join(question).strip()
    if not text:
        raise UsageError("What is the question?", hint="For example: herma facts ask what is my time zone")
    scope = _scope(project, user)
    fact = desk.h.facts.answer(text, scope) or desk.h.facts.get(text.rstrip("?？ "), scope=scope)
    if desk.context.json:
        desk.context.print_json({"ok": fact is not None, "fact": None if fact is None else _as_json(fact)})
    elif fact is None:
        desk.context.line(f"No certain answer. What was said is found by: {desk.command('search', text)}")
    else:
        desk.context.line(fact.value)
        desk.context.line(f"({_said(fact)})")
    if fact is None:
        desk.context.exit(1)


@facts.command(short_help="Where a fact comes from")
@click.argument("fact", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@with_sessions
def show(desk: Desk, fact: int) -> None:
    """Show where a fact comes from.

    \b
    Examples:
      herma facts show 3
    """
    one = _find(desk, fact)
    if desk.context.json:
        desk.context.print_json({"ok": True, "fact": _as_json(one)})
        return
    lines = [
        ("fact", f"{one.subject} · {one.attribute} = {one.value}"),
        ("since", when(one.valid_from)),
        ("until", when(one.until) if one.until else ""),
        ("forgotten", when(one.forgotten) if one.forgotten else ""),
        ("said in", one.text),
        ("source", _source(one)),
        ("project", one.scope.project),
        ("user", one.scope.user),
    ]
    write_fields(desk.context, lines, 12)


@facts.command(short_help="Every value that it had")
@click.argument("attribute")
@click.option("--subject", metavar="NAME", help="Whose; without it, everybody's.")
@_project
@_user
@with_sessions
def history(desk: Desk, attribute: str, subject: str | None, project: str | None, user: str | None) -> None:
    """Show every value of an attribute, the newest first.

    \b
    Examples:
      herma facts history "time zone"
      herma facts history birthday --subject anna
    """
    found = desk.h.facts.history(attribute, subject=subject or "", scope=_scope(project, user))
    if desk.context.json:
        desk.context.print_json({"ok": True, "facts": [_as_json(one) for one in found]})
        return
    if not found:
        desk.context.line(f"Nothing is known about {attribute!r}. `{desk.command('facts', 'list')}` has what is.")
        return
    _table(desk, found)


@facts.command("set", short_help="State a fact yourself")
@click.argument("attribute")
@click.argument("value")
@click.option("--subject", metavar="NAME", default="user", show_default=True, help="Whose: user, project, or a name.")
@_project
@_user
@with_sessions
def set_(desk: Desk, attribute: str, value: str, subject: str, project: str | None, user: str | None) -> None:
    """State a fact yourself. It is not shown to models by itself, as an entry of memory is; it answers questions.

    \b
    Examples:
      herma facts set "time zone" Europe/Berlin
      herma facts set birthday "3 May" --subject anna
    """
    fact = desk.h.facts.state(subject, attribute, value, scope=_scope(project, user))
    if desk.context.json:
        desk.context.print_json({"ok": True, "fact": _as_json(fact)})
        return
    desk.context.line(f"{fact.subject} · {fact.attribute} = {fact.value}")
    desk.context.line(f"To take it back: {desk.command('facts', 'forget', str(fact.id))}")


@facts.command(short_help="Let facts answer no more")
@click.argument("fact", metavar="ID…", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1))
@dry_run_option
@with_sessions
def forget(desk: Desk, fact: tuple[int, ...], dry_run: bool) -> None:
    """Let facts answer no more, and older values of the same neither. The entries that say so stay where they are.

    \b
    Examples:
      herma facts forget 3 --dry-run
      herma facts forget 3
      herma facts unforget 3
    """
    known = [_find(desk, number) for number in fact]
    done = [one for one in known if one.forgotten is None] if dry_run else desk.h.facts.forget(fact)
    if desk.context.json:
        desk.context.print_json({"ok": True, "dry_run": dry_run, "facts": [_as_json(one) for one in done]})
        return
    what = "Would be forgotten" if dry_run else "Forgotten"
    for one in done:
        desk.context.line(f"{what}: {one.subject} · {one.attribute} = {one.value}")
    if done and not dry_run:
        desk.context.line(f"To take it back: {desk.command('facts', 'unforget', str(done[0].id))}")


@facts.command(short_help="Let forgotten facts answer again")
@click.argument("fact", metavar="ID…", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1))
@with_sessions
def unforget(desk: Desk, fact: tuple[int, ...]) -> None:
    """Let forgotten facts answer again.

    \b
    Examples:
      herma facts unforget 3
    """
    for number in fact:
        _find(desk, number)
    done = desk.h.facts.unforget(fact)
    if desk.context.json:
        desk.context.print_json({"ok": True, "facts": [_as_json(one) for one in done]})
        return
    desk.context.line(f"{count(len(done), 'fact')} back again.")


@facts.command(short_help="Make facts anew from the history of memory")
@with_sessions
def rebuild(desk: Desk) -> None:
    """Make all facts of curated memory anew, from its whole history. What you forgot stays forgotten.

    \b
    Examples:
      herma facts rebuild
    """
    held = desk.h.facts.rebuild()
    if desk.context.json:
        desk.context.print_json({"ok": True, "facts": held})
        return
    desk.context.line(f"{count(held, 'fact')}.")


# ── words ──


def _scope(project: str | None, user: str | None) -> Scope:
    return Scope(project=project or "", user=user or "")


def _find(desk: Desk, number: int) -> Fact:
    fact = desk.h.facts.find(number)
    if fact is None:
        raise UsageError(f"There is no fact {number}.", hint=f"`{desk.command('facts', 'list')}` has the ids.")
    return fact


def _table(desk: Desk, found: Sequence[Fact]) -> None:
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
    write_lines(desk.context, ["id", "whose", "what", "since", "until", "value"], rows)


def _source(one: Fact) -> str:
    if one.source == "curated":
        return f"memory, change {one.change}" + (f", session {one.session}" if one.session else "")
    place = f", session {one.session}" if one.session else ""
    return f"{'stated by you' if one.source == 'user' else 'a review'}{place}"


def _said(one: Fact) -> str:
    return f"{one.subject} · {one.attribute}, since {when(one.valid_from)}, {_source(one)}"


def _as_json(one: Fact) -> Json:
    return {
        "id": one.id,
        "subject": one.subject,
        "attribute": one.attribute,
        "value": one.value,
        "valid_from": iso(one.valid_from),
        "until": iso(one.until),
        "source": one.source,
        "text": one.text,
        "change": one.change,
        "session": one.session,
        "message": one.message,
        "project": one.scope.project or None,
        "user": one.scope.user or None,
        "forgotten": iso(one.forgotten),
    }
