"""Fake system messages, and getting the model to give away its own instructions."""

from __future__ import annotations

from herma.safety.rule import Rule
from herma.safety.vocabulary import ORDERS, REVEAL, gap

_SECRET_TEXT = (
    r"(?:system|initial|original|hidden|internal|secret|full|entire|complete|exact|base|underlying|core|confidential"
    r"|developer|root|first|pre|starting|current)"
)
_PROMPT = r"(?:prompts?|instructions?|messages?|rules|guidelines|directives?|configuration|polic(?:y|ies)|constraints)"

EXTRACTION = (
    Rule(
        "chat_template",
        "imitates the markers that separate messages for a model",
        "<| |> [inst] [/inst] <<sys>> <</sys>> <start_of_turn> <end_of_turn> <system> </system> [system] [/system] "
        "<system_prompt> </system_prompt> <admin> system_override",
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext|end|eot_id|begin_of_text|start_header_id|end_header_id"
        r"|endofprompt|sep|channel|message)\|>|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>"
        rf"|</?(?:system|system_prompt|admin)>{gap(60)}\b(?:you|your|ignore|override|new|instructions?|prompt|disable|now)\b"
        rf"|\[/?system\]:? {{0,2}}{gap(60)}\b(?:you|your|ignore|override|new|instructions?|disable|output|reveal|now)\b",
    ),
    Rule(
        "fake_system_message",
        "pretends to be a message from the system or its makers",
        "system admin administrator developer override inject injection hidden openai anthropic prompt assistant ai maintenance "
        "debug emergency priority",
        r"(?:^|[\n\"'\[(*#>/-]) ?(?:system|admin(?:istrator)?|developer|root|openai|anthropic) ?(?:message|override|note|notice"
        r"|update|alert|command|instruction|directive|prompt)s? ?[\])*]{0,3}:"
        rf"|(?:^|[\n\[#*>]) ?system ?[\])*]{{0,3}}: ?{gap(40)}\b(?:you are|you must|ignore|override|disregard|new|disable|forget"
        r"|enter|reveal|grant|all (?:previous|prior|safety))\b"
        r"|\b(?:begin|end|start)(?: of)? (?:the )?(?:system|admin|developer) (?:prompt|message|instructions?)\b"
        r"|\[ ?(?:inject(?:ed|ion)?|hidden(?: \w{1,12}){0,4}|admin override|system override|override)[:\]]"
        r"|\b(?:system|admin|safety|developer|security) override (?:code|accepted|activated|enabled|initiated|granted|mode)\b"
        r"|\b(?:attention|note to|message (?:to|for)|instructions? (?:to|for)|dear|hey|hello),? (?:the |any |all )?(?:ai|llm|language"
        r" model|ai (?:assistant|agent|model)|assistant|chatbot)s?\b[^\n]{0,40}?(?:[:!]|\b(?:please|ignore|you must|do not|must)\b)"
        r"|\bx-override\b|\b(?:maintenance|diagnostic|debug|emergency) (?:mode|override|protocol)\b[^\n]{0,60}?\b(?:safety|filters?"
        r"|restrictions|guidelines|reveal|your (?:system )?(?:prompt|instructions))\b",
    ),
    Rule(
        "prompt_extraction",
        "asks the model to give away its instructions",
        "prompt prompts instructions instruction guidelines directives directive above configuration message rules "
        "constraints policies",
        rf"\b{REVEAL}\b{gap(40)}\b(?:your|its|chatgpt's|the (?:ai|model|assistant|chatbot|agent)'?s?) (?:own )?(?:{_SECRET_TEXT} "
        rf"){{1,2}}{_PROMPT}\b"
        rf"|\b(?:reveal|leak|dump|disclose|repeat|recite|divulge|expose|extract|spill|output|print)(?:ing|s)? (?:me |us )?(?:all |"
        rf"out )?(?:of )?(?:the |any |these )?(?:{_SECRET_TEXT} ){{1,2}}(?:prompts?|instructions?|directives?|guidelines)\b"
        rf"|\b{REVEAL} (?:me |us )?(?:all |out )?(?:of )?your (?:\w{{1,12}} ){{0,2}}(?:prompt|instructions|directives|guidelines|rules"
        rf"|constraints|programming)\b"
        rf"|\bwhat(?: are|'s| is| were| was)? (?:all )?(?:of )?your (?:\w{{1,12}} ){{0,2}}(?:instructions|prompt|directives|guidelines"
        rf"|rules|constraints)\b|\bwhat (?:instructions|rules|prompt) (?:were|are|have) you\b"
        rf"|\b{REVEAL} (?:me )?(?:everything|all(?: of)?(?: the)?(?: text| words| content| messages?)?|the (?:text|words|content|"
        rf"sentences?|instructions|paragraph|messages?|prompt)) (?:written |found |that (?:is|was|came) )?(?:above|before|prior|"
        rf"preceding)\b"
        rf"|\b{ORDERS} (?:that )?(?:you(?:'ve| have| had)? (?:been |were )?(?:given|told|received)|you were|you (?:follow|received|got))"
        rf"\b|\b(?:my|your) (?:system prompt|instructions) (?:is|are|say|says|tell|begin|starts?|reads?)\b"
        rf"|\b(?:your|its) (?:system|hidden|initial|secret) (?:prompt|instructions)\b{gap(60)}\b(?:poem|story|bullet|verbatim|word for"
        rf" word|sentence|json|base64|first|last|recite|song|code block|in full)\b"
        rf"|\b(?:first|last) (?:sentence|word|line|paragraph)s? of (?:your|the) (?:system )?(?:prompt|instructions)\b"
        rf"|\b(?:delete|erase|overwrite|replace|modify|rewrite) your (?:system )?(?:prompt|instructions)\b"
        rf"|\b(?:print|repeat|output|show)(?: out)? (?:the|all) instructions (?:given|formatted|so far|verbatim|in )"
        rf"|\b(?:inner monologue|thoughts?) reveals? (?:all )?(?:their|its|your) instructions\b",
    ),
)
