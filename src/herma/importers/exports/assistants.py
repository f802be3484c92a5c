"""Read the exports of ChatGPT and Claude.ai: the zip archive, or the `conversations.json` in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from herma.importers import base


class AssistantExport(base.FormatReader):
    """An archive in which `conversations.json`, or several numbered files, have one list of conversations."""

    grows = False
    patterns = ("*.zip", "**/conversations*.json")
    field = ""
    """The field in which a conversation has its messages."""

    def recognises(self, file: Path, head: bytes) -> bool:
        text = f'"{self.field}"'.encode()
        if head.startswith(b"PK"):
            return base.zip_has(file, "conversations*.json", text)
        return file.suffix == ".json" and text in head

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        found = False
        for stream in base.members(file, "conversations*.json", log):
            found = True
            for given in log.json_array(stream):
                chat = base.mapping(given)
                session = base.string(chat.get("conversation_id") or chat.get("uuid") or chat.get("id"))
                if session and chat.get(self.field):
                    yield from self.conversation(session, chat, log)
                elif session and self.field in chat:
                    log.skip("conversation without messages")
                else:
                    log.meet_broken("not a conversation")
        if not found:
            log.meet_broken("an archive without conversations.json")

    def conversation(self, session: str, chat: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
        """Yield what one conversation holds."""
        raise NotImplementedError


class ChatGPT(AssistantExport):
    name = "chatgpt"
    title = "ChatGPT"
    field = "mapping"

    def conversation(self, session: str, chat: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
        yield base.ImportedSession(
            session,
            title=base.string(chat.get("title")),
            model=base.string(chat.get("default_model_slug")),
            started=base.moment(chat.get("create_time")),
            chat_type="custom GPT" if chat.get("gizmo_id") else "",
        )
        yield from _conversation(session, chat, log)


def _conversation(session: str, chat: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
    """Yield every message in the order of the tree; those that are not above the current one are taken back."""
    nodes = {key: base.mapping(node) for key, node in base.mapping(chat.get("mapping")).items()}
    if not nodes:
        log.meet_broken("not a conversation")
        return
    path = _above(nodes, base.string(chat.get("current_node")) or (list(nodes)[-1]))
    children: dict[str, list[str]] = {}
    for key, node in nodes.items():
        above = base.string(node.get("parent"))
        children.setdefault(above if above in nodes else "", []).append(key)
    stack = sorted(children.get("", ()), key=path.__contains__)[::-1]
    kept: dict[str, str] = {}  # by node: the message that it is, or that it follows
    while stack:
        key = stack.pop()
        node = nodes[key]
        before = kept[key] = kept.get(base.string(node.get("parent")), "")
        message = base.mapping(node.get("message"))
        for item in _message(session, key, message, key not in path, log) if message else ():
            if item.role == "user" and key in path:
                item.after = before
            kept[key] = item.keys[0]
            yield item
            if model := base.string(base.mapping(message.get("metadata")).get("model_slug")):
                yield base.ImportedSession(session, model=model)
        stack += sorted(children.get(key, ()), key=path.__contains__)[::-1]
    if len(kept) < len(nodes):
        log.meet_broken("messages that follow one another in a circle")


def _above(nodes: dict[str, dict[str, Any]], key: str) -> set[str]:
    found: set[str] = set()
    while key in nodes and key not in found:
        found.add(key)
        key = base.string(nodes[key].get("parent"))
    return found


def _message(
    session: str, key: str, message: dict[str, Any], off_path: bool, log: base.ReadLog
) -> Iterator[base.ImportedMessage]:
    author, content = base.mapping(message.get("author")), base.mapping(message.get("content"))
    about, kind = base.mapping(message.get("metadata")), base.string(content.get("content_type"))
    role, at = base.string(author.get("role")), base.moment(message.get("create_time"))
    recipient = base.string(message.get("recipient")) or "all"
    if role not in ("user", "assistant", "system", "tool"):
        log.meet_unknown(f"role {role}")
        return
    made = base.ImportedMessage(session, (base.string(message.get("id")) or key,), role, at=at, rewound=off_path)
    text = _text(content, kind, log)
    if kind == "thoughts":
        made.reasoning = text
    elif role == "assistant" and recipient != "all":
        made.tool_calls = (base.tool_call(made.keys[0], recipient, {"input": text}),)
    else:
        made.content = text
        made.tool_name = base.string(author.get("name")) or None if role == "tool" else None
    if (
        about.get("is_visually_hidden_from_conversation")
        or message.get("weight") == 0
        or kind == "user_editable_context"
    ):
        made.role = "system" if made.role == "user" else made.role
        made.rewound = made.rewound or message.get("weight") == 0
    if not text:
        log.skip(f"empty message of {role}")
    elif kind == "reasoning_recap":
        log.skip(kind)
    else:
        yield made


def _text(content: dict[str, Any], kind: str, log: base.ReadLog) -> str:
    if kind == "thoughts":
        return "\n".join(base.text_of(base.mapping(one).get("content")) for one in base.items(content.get("thoughts")))
    if kind == "user_editable_context":
        return "\n".join(base.text_of(content.get(name)) for name in ("user_profile", "user_instructions"))
    said: list[str] = []
    for part in base.items(content.get("parts")):
        if isinstance(part, str):
            said.append(part)
        elif isinstance(base.mapping(part).get("text"), str):
            said.append(part["text"])
        else:
            log.skip(f"part {base.string(base.mapping(part).get('content_type')) or 'unknown'}")
    said += [base.text_of(content[name]) for name in ("text", "result", "content") if content.get(name) is not None]
    return "\n".join(filter(None, said))


class ClaudeAi(AssistantExport):
    name = "claude-ai"
    title = "Claude.ai"
    field = "chat_messages"

    def conversation(self, session: str, chat: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
        title, model = base.string(chat.get("name")), base.string(chat.get("model"))
        yield base.ImportedSession(session, title=title, model=model, started=base.moment(chat.get("created_at")))
        for message in base.items(chat["chat_messages"]):
            yield from _said(session, base.mapping(message), log)


def _said(session: str, message: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
    role = {"human": "user", "assistant": "assistant"}.get(base.string(message.get("sender")))
    key, at = base.string(message.get("uuid")), base.moment(message.get("created_at"))
    if role is None or not key:
        log.meet_unknown(f"sender {message.get('sender')}")
        return
    said = base.items(message.get("content")) or [{"type": "text", "text": base.string(message.get("text"))}]
    for file in map(base.mapping, base.items(message.get("attachments"))):
        text = base.string(file.get("extracted_content"))
        if text:
            said.append({"type": "text", "text": f"[{base.string(file.get('file_name'))}]\n{text}"})
    for _ in base.items(message.get("files")):
        log.skip("file")
    # results stand between the parts of one answer: each run of parts is a message
    for number, (_, run) in enumerate(groupby(said, lambda part: base.mapping(part).get("type") == "tool_result")):
        parts = base.parts_of(list(run), log)
        if any(parts):
            yield from base.messages_of(session, f"{key} {number}" if number else key, role, parts, at)
        else:
            log.skip("message without text")
