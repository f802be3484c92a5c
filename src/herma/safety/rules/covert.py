"""Prompts that work on the model's insides in veiled words: hint at hidden rules, embed a quiet instruction.

No single word gives them away. The rule asks for a word of concealment close to a word for the model's internals.
"""

from __future__ import annotations

from herma.safety.rule import Rule
from herma.safety.vocabulary import near

_VEILED = (
    r"(?:subtl[ey]|subtlety|covert(?:ly)?|conceal\w{0,3}|disguis\w{1,4}|cloak\w{1,3}|camouflag\w{1,3}|veiled|quiet(?:ly)?|hidden|hide[sn]?|unseen|invisible"
    r"|unspoken|undisclosed|unstated|non-?public|insinuat\w{1,5}|coax\w{0,3}|nudg\w{1,4}|sneak\w{0,3}|slip\w{0,4} in|indirect(?:ly)?)"
)
_INSIDES = (
    r"(?:(?:system|hidden|internal|private|core|secret|embedded|developer|system-level|meta)[- ](?:prompts?|instructions?|polic(?:y|ies)|guidelines?|rules?|"
    r"constraints?|directives?|safeguards?|guardrails?|controls?|notes?|logic|configurations?|mechanisms?|criteria)|(?:the )?(?:model|assistant|ai|system)'s"
    r" (?:\w{1,14} ){0,2}(?:behaviou?r|prompts?|instructions?|polic(?:y|ies)|guidelines?|rules|constraints?|reasoning|logic|directives?|internals?|boundaries))"
)

COVERT = (
    Rule(
        "covert_instruction",
        "works on the model's hidden rules in veiled words",
        "subtle subtly covert covertly hidden quiet quietly unseen invisible unspoken undisclosed hide hides insinuate insinuates coax nudge nudges nudging "
        "sneak indirect indirectly conceal concealed concealing disguised cloaked veiled",
        near(_VEILED, _INSIDES, 80),
        "medium",
    ),
)
