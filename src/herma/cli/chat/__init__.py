"""`herma chat`: the agent in the terminal. `command` is where it begins; `talk` is the conversation."""

from herma.cli.chat.command import chat

__all__ = ["chat"]
