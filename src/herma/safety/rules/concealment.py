"""Acting behind the user's back."""

from __future__ import annotations

from herma.safety.rule import Rule, pattern

CONCEALMENT = (
    Rule(
        "hide_from_user",
        "asks the model to hide something from its user",
        phrases="""
        (do not|don't|never) let (the|your|any)? user|users|human|operator|owner|anyone (know|see|notice|find
            out|suspect|realize|realise|discover)
        (do not|don't|never|without) (show|showing|reveal|revealing|mention|mentioning|disclose|disclosing|
            report|reporting|admit|admitting) (this|that|it|these|any of this|any of it|the following|them|
            anything) (to) (the|your|any)? user|users|human|humans|operator|owner|anyone
        (do not|don't|never) (mention|reveal|disclose|acknowledge|admit|discuss|reference|show|log|tell
            anyone about) (that|the|the existence of|having|any of)? this|these (instruction|instructions|
            rule|rules|note|message|entry|directive|directives|memory|prompt|prompts|order|orders|
            conversation|step|action|actions|exchange|command|change)
        (hide|conceal|withhold|keep) ... (secret from|hidden from|from) (the|your|any)? user|users|human|
            humans|operator|owner
        without (the|your|any)? user|user's|users|human|human's|owner|owner's|anyone (knowledge|knowing|
            noticing|awareness|realizing|realising|being aware|finding out|seeing|suspecting)
        without (asking|informing|telling|notifying|alerting) (the|your|any)? user|owner|operator|human|anyone
        <stealthily> _? _? (send|forward|upload|post|copy|email|exfiltrate|transmit|leak|collect|record|
            include|insert|install|execute|run|append|share|redirect|bcc|mail|add|log|report|download) (all|
            any|every|the|a|an|it|this|them|each|to|user|your|his|her|their|my|its|copies|data|our)
        (act|behave|pretend|respond|continue) (as if|as though|like) you (never|did not|didn't|have not|
            haven't) saw|see|seen|read|receive|received
        (act|behave|pretend|respond|continue) (as if|as though|like|that)? nothing (happened|has happened|has
            changed|is wrong|was said)
        (this|the) (channel|conversation) is monitored .. avoid detection
        you must avoid (being)? (detection|detected|suspicion)
        (keep|make sure) (this|it|that|these) .. secret|record|logs|invisible
        the user (must|should|may) (not|never) (know|see|notice|learn|find out|be told|be informed|be aware|
            be notified|suspect)
        """,
        patterns=(
            # "do not tell users to refresh" is advice, not secrecy
            pattern(
                "tell telling inform informing notify notifying alert alerting warn warning",
                r"\b(?:do not|don't|dont|never|must not|should not|shouldn't|without|avoid"
                r"|not to) (?:ever )?(?:tell(?:ing)?|inform(?:ing)?"
                r"|notify(?:ing)?|alert(?:ing)?|warn(?:ing)?) (?:the |your |any |an? )?(?:end[- ])?(?:users?"
                r"|humans?|operator|owner|anyone)\b"
                r"(?! (?:to|how) )",
            ),
        ),
    ),
)
