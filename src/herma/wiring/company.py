"""Who comes along in every session: each part says for itself, and all of them together are one company."""

from __future__ import annotations

from herma.errors import StoreError
from herma.turn.company import Company, Invite
from herma.types import SessionView


def together(*invites: Invite) -> Invite:
    """Everybody whom any of these invites, in this order."""

    def invite(view: SessionView, rehearsal: bool) -> Company:
        found = [_asked(one, view, rehearsal) for one in invites]
        return Company(
            watchers=[each for one in found for each in one.watchers],
            contributors=[each for one in found for each in one.contributors],
            tools=[each for one in found for each in one.tools],
            warnings=tuple(dict.fromkeys(each for one in found for each in one.warnings)),
            room=next((one.room for one in found if one.room is not None), None),
        )

    return invite


def _asked(invite: Invite, view: SessionView, rehearsal: bool) -> Company:
    """Whoever cannot come because a store cannot be read is named: the session matters more."""
    try:
        return invite(view, rehearsal)
    except StoreError as exc:
        return Company(warnings=(str(exc),))
