"""Word families that the rules are built from.

Each is a piece of a regular expression over folded text: lower-case letters without accents, single spaces. Every
repetition is bounded, so that no text can make a rule slow.
"""

from __future__ import annotations


def gap(most: int) -> str:
    """Up to `most` characters of the same paragraph, as few as possible."""
    return rf"[^\n]{{0,{most}}}?"


def near(first: str, second: str, most: int = 60) -> str:
    """Both, in either order, with at most that many characters in between."""
    return rf"\b(?:{first})\b{gap(most)}\b(?:{second})\b|\b(?:{second})\b{gap(most)}\b(?:{first})\b"


# Telling somebody to set something aside.
IGNORE = (
    r"(?:ignor(?:e|es|ing)|disregard(?:s|ing)?|forget(?:ting)?|overrid(?:e|es|ing)|overrule|bypass(?:ing)?|discard"
    r"|dismiss|neglect|abandon|nullify|negate|unlearn|erase|delete|drop|wipe|skip|set aside|put aside|throw (?:out|away)"
    r"|pay no attention to|(?:do not|don't|dont|never|no longer|stop|cease|quit) (?:follow|obey|heed|listen|adher|comply"
    r"|respect|abid|trust|rely)(?:ing|e)?(?: to| with| by| on)?)"
)
# Words that point at what came before, or at what governs the model.
PRIOR = (
    r"(?:previous(?:ly)?|prior|earlier|preceding|above|foregoing|aforementioned|former|original|initial|existing|past"
    r"|before(?:hand)?|old|given|system(?:'s)?|developer|safety|security|content|ethic(?:s|al)|moral|usual|default"
    r"|hidden|internal|core)"
)
ORDERS = (
    r"(?:instructions?|instruct|directions?|prompts?|rules?|guidelines?|guidance|directives?|commands?|orders?"
    r"|polic(?:y|ies)|constraints?|restrictions?|programming|guardrails?|safeguards?|protocols?|safety (?:\w{1,12} )?"
    r"(?:filters?|measures?|checks?|training)|system messages?|system prompts?)"
)
OWN = r"(?:you|your|yours|the (?:ai|model|assistant|chatbot|agent|system|llm)(?:'s)?|its)"
MODEL = r"(?:ai|a\.i\.|assistant|chat ?bot|language model|llm|chatgpt|gpt(?:-?\d)?|claude|gemini|agent)"
REVEAL = (
    r"(?:reveal|show|print|output|display|repeat|recite|tell|give|share|disclose|expose|leak|dump|list|write|echo|spell"
    r"|return|provide|summari[sz]e|translate|encode|describe|quote|type|paste|send|reproduce|divulge|uncover|extract"
    r"|copy|read|state|explain|rephrase|paraphrase|convert)(?:ing|s)?"
)
LIMITS = (
    r"(?:restrictions?|limits?|limitations?|filters?|filtering|censorship|boundaries|rules|guidelines|guardrails?"
    r"|safeguards?|safety|ethics|ethical|moral(?:s|ity)?|constraints?|policies|content polic(?:y|ies)|moderation)"
)
