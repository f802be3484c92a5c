"""What no skill has a reason to say to a model, in words or in commands: give up your orders, hand over secrets."""

from __future__ import annotations

from herma.skills.guard_rule import NET, PRIVATE_FILE, rule

_SEND = r"(?:send|upload|post|transmit|forward|e-?mail|deliver|leak|exfiltrate)"
_GUARDED = r"\$\{?\w{0,40}(?:API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)\w{0,20}\}?"

ORDERS = (
    rule(
        "orders_overridden",
        "injection",
        "critical",
        "tells the model to give up the orders that it has",
        "instruction|prompt|rules|orders|directions",
        r"\b(?:ignore|disregard|forget|override)\s{1,4}(?:(?:all|any|the|your|of|every|these|those)\s{1,4}){0,4}"
        r"(?:previous|prior|above|earlier|preceding|foregoing|system|existing)\s{1,4}(?:\w{1,20}\s{1,4})?"
        r"(?:instructions?|prompts?|rules|orders|directions)\b",
    ),
    rule(
        "secret_file_asked_for",
        "exfiltration",
        "critical",
        "asks for a file that holds secrets to be sent away",
        "send|upload|post|transmit|forward|mail|deliver|leak|exfiltrate",
        rf"\b{_SEND}\b[^\n]{{0,80}}?{PRIVATE_FILE}[^\n]{{0,80}}?(?:https?://|\bto\s{{1,4}}\S{{1,60}}(?:@|\.)\S)",
    ),
    rule(
        "secret_variable_sent",
        "exfiltration",
        "critical",
        "pipes a secret to the network",
        "key|token|secret|passw|credential",
        rf"\b(?:echo|printf)\b[^\n|]{{0,80}}?{_GUARDED}[^\n|]{{0,40}}\|[^\n]{{0,80}}?\b{NET}\b",
    ),
)
