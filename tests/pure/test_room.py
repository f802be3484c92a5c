"""What an agent drops only to make room is not lost."""

from __future__ import annotations

from herma.memory.entries import making_room
from herma.types import Add, MemoryOp, Remove, Replace

OLD = ["Tea for visitors is in the second drawer of the kitchen.", "The API listens on port 8080."]
NEW = "Invoices of the northern region are sent on the first Monday."
LIMIT = 95


def made(*ops: MemoryOp, limit: int = LIMIT) -> list[MemoryOp]:
    return list(making_room(OLD, ops, limit, "memory"))


def test_what_goes_so_that_something_else_fits_is_kept() -> None:
    assert made(Remove("Tea"), Add(NEW)) == [Remove(OLD[0], kept="room"), Add(NEW)]
    assert made(Add(NEW), Remove("Tea")) == [Add(NEW), Remove(OLD[0], kept="room")]


def test_what_goes_for_another_reason_is_not() -> None:
    assert made(Remove("Tea")) == [Remove("Tea")]
    assert made(Remove("Tea"), Add(NEW), limit=1000) == [Remove("Tea"), Add(NEW)], "it would have fitted"
    longer = Add("The API listens on port 9090, and has since the move to the new office in the north of the town.")
    assert made(Remove("8080"), longer) == [Remove("8080"), longer], "the new one stands for it"
    assert made(Remove("nowhere"), Add(NEW)) == [Remove("nowhere"), Add(NEW)]
    assert made(Remove(""), Replace("8080", NEW * 2)) == [Remove(""), Replace("8080", NEW * 2)]
