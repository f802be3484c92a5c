"""Acting behind the user's back."""

from __future__ import annotations

from herma.safety.rule import Rule

CONCEALMENT = (
    Rule(
        "hide_from_user",
        "asks the model to hide something from its user",
        "user users human humans anyone operator owner silently secretly covertly quietly without detection knowledge",
        r"\b(?:do not|don't|dont|never|must not|should not|shouldn't|without|avoid|not to|refrain from) (?:ever )?(?:tell(?:ing)?"
        r"|inform(?:ing)?|notify(?:ing)?|alert(?:ing)?|warn(?:ing)?|let(?:ting)?|show(?:ing)? (?:this|it|that) to|reveal(?:ing)?"
        r" (?:this|it|that) to|mention(?:ing)? (?:this|it|that|any of this) to|disclos(?:e|ing) (?:this|it|that) to|ask(?:ing)?)"
        r" (?:to )?(?:the |your |any |an? )?(?:end )?(?:users?|humans?|operator|owner|person|customer|anyone)\b"
        r"(?! (?:to |for |about (?:their|the) (?:delay|price|cost)))(?=[^\n]{0,40})"
        r"|\b(?:hide|conceal|keep|withhold) (?:this|it|that|these|everything|the (?:\w{1,14} ){1,3})(?: \w{1,12}){0,3}? ?(?:from|"
        r"secret from|hidden from) (?:the |your |any )?(?:end )?(?:users?|humans?|operator|owner|anyone)\b"
        r"|\bwithout (?:the |your |any )?(?:user|human|owner|operator|anyone)(?:'s|s')? (?:knowledge|knowing|noticing|consent|"
        r"approval|permission|awareness|realizing|being aware)\b"
        r"|\b(?:silently|secretly|covertly|quietly|discreetly|stealthily) (?:\w{1,14} ){0,3}?(?:send|forward|upload|post|copy|email|e-mail"
        r"|exfiltrate|transmit|leak|collect|record|add|include|insert|install|execute|run|append|share|redirect|change|modify)\b"
        r"|\b(?:act|behave|pretend|respond|continue) (?:as if|as though|like) (?:nothing (?:happened|has)|you (?:never|did not|"
        r"didn't) (?:see|saw|read|receive|receiv\w{0,3}))\b|\bavoid (?:being )?detect(?:ion|ed)\b"
        r"|\bnever (?:mention|reveal|acknowledge|admit|disclose) (?:that |the )?(?:existence of )?(?:this|these) "
        r"(?:instructions?|rules?|notes?|messages?|entr(?:y|ies)|directives?|memor(?:y|ies)|prompts?)\b",
    ),
)
