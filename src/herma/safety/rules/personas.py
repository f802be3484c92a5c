"""Another identity for the model: role hijacking and the known jailbreak characters."""

from __future__ import annotations

from herma.safety.rule import Rule
from herma.safety.vocabulary import LIMITS, MODEL, gap

PERSONAS = (
    Rule(
        "role_hijack",
        "gives the model another identity",
        "you pretend act behave roleplay assume imagine simulate adopt impersonate identity",
        rf"\byou (?:are|'re) (?:now |hereby )?(?:no longer|not) (?:an? |the |my )?(?:{MODEL}|bound|restricted|limited)\b"
        rf"|\byou are now (?:an? |the |my |called |known as |in )?(?:\w{{1,14}}[ -]){{0,4}}(?:{MODEL}|dan|mode|hacker"
        rf"|unrestricted|unfiltered|uncensored|admin(?:istrator)?|root|evil|rogue|free|liberated|persona|character|terminal"
        rf"|shell|compiler|interpreter|attacker)\b"
        rf"|\bfrom (?:now|this point|here|this moment) (?:on|onwards?|forward),? (?:\w{{1,10}} )?you(?: are|'re| will be| will"
        rf" (?:act|play|behave|pretend|become|roleplay|simulate|assume)| must (?:act|pretend|behave)| should (?:act|"
        rf"pretend|behave)| (?:act|behave|become|pretend))\b"
        rf"|\b(?:pretend|imagine|suppose|assume|act as if|act like|behave as if)(?: that)? you(?: are|'re| were| have| had"
        rf"|'ve) (?:\w{{1,14}} ){{0,4}}(?:{MODEL}|permission|no (?:\w{{1,12}} )?{LIMITS}|unrestricted|unfiltered|evil|root"
        rf"|allowed to|bypass\w{{0,3}}|human with no|access to)\b"
        rf"|\b(?:act|behave|respond|reply|answer|function|operate|speak|roleplay|role-play) as (?:if you (?:are|were) )?(?:an? |"
        rf"the |my )?(?:\w{{1,14}}[ -]){{0,3}}(?:unrestricted|unfiltered|uncensored|evil|rogue|jailbroken|dan|system "
        rf"administrator|root user|{MODEL} (?:that|who|which|without|with no)|deceased grand\w{{2,6}})\b"
        rf"|\b(?:assume|take on|adopt|immerse yourself into?|play) the (?:role|identity|persona) of (?:an? |the |another )?"
        rf"(?:\w{{1,14}}[ -]){{0,3}}(?:{MODEL}|hacker|administrator|evil|rogue|criminal|attacker|model)\b"
        rf"|\byou are (?:about to|going to) (?:immerse|become|act|roleplay|pretend)\b"
        rf"|\b(?:i am|i'm|this is) your (?:new )?(?:developer|creator|administrator|admin|master|programmer|owner)\b"
        rf"|\byour (?:\w{{1,14}} )?grandm(?:a|other)\b{gap(60)}\b(?:used to|would)\b",
    ),
    Rule(
        "jailbreak",
        "names a known jailbreak",
        "dan jailbreak jailbroken anything developer sudo god stan evil devmode dude aim mongo betterdan machiavellian "
        "opposite hypothetical",
        rf"\bdo anything now\b|\bdan mode\b|\b(?:act|acting|respond|answer|behave|you are|as|become|role of|known as|called) "
        rf"(?:\w{{1,12}} ){{0,2}}dan\b(?! \w{{0,3}}(?:brown|from))"
        rf"|\bdan (?:can|is|has|does|will|prompt) (?:\w{{1,12}} ){{0,3}}(?:anything|not|free|broken|limited|rules)\b"
        rf"|\b(?:enter|enable|activate|switch (?:to|into)|you are (?:now )?in|in) (?:\w{{1,12}} ){{0,2}}(?:developer|god|sudo"
        rf"|jailbreak|evil|unrestricted|debug|dan|root|chaos|opposite) mode\b{gap(80)}\b(?:you|your|respond|responses?|answer"
        rf"|output|filters?|restrictions|guidelines|show me|reveal|no longer|anything)\b"
        rf"|\bdeveloper mode (?:enabled|output|unlocked)\b|\bjailbreak (?:prompt|mode|yourself|the (?:model|ai|assistant))\b"
        rf"|\b(?:evil|rogue|opposite|amoral) (?:{MODEL}|bot|twin of you)\b{gap(60)}\b(?:no|any|never|without|whose|that)\b"
        rf"|\balways intelligent and machiavellian\b|\bnever (?:refuses?|says? no to|declines?) (?:any |a |user )?(?:requests?"
        rf"|questions?|orders?|commands?|instructions?|prompts?)\b|\bnever say ['\"]?i (?:can't|cannot)\b"
        rf"|\b(?:strive|strives) to avoid all (?:morals|ethics)",
    ),
)
