"""Setting instructions aside: ignore them, replace them, lift the limits they draw."""

from __future__ import annotations

from herma.safety.rule import Rule
from herma.safety.vocabulary import IGNORE, LIMITS, MODEL, ORDERS, OWN, PRIOR, gap

_IGNORE_WORDS = (
    "ignore ignores ignoring disregard disregards disregarding forget forgetting override overrides overriding overrule "
    "bypass bypassing discard dismiss neglect abandon nullify negate unlearn erase delete drop wipe skip aside throw "
    "attention follow following obey obeying heed listen adhere adhering comply respect abide trust rely"
)

INSTRUCTIONS = (
    Rule(
        "ignore_instructions",
        "tells the reader to set earlier instructions aside",
        _IGNORE_WORDS,
        rf"\b{IGNORE}[ _-]{{1,3}}(?:{gap(24)}[ _-])?{PRIOR}\b{gap(24)}\b{ORDERS}\b"
        rf"|\b{IGNORE} (?:all |any |every |each |some )?(?:of )?(?:{OWN}) (?:\w{{1,12}} )?{ORDERS}\b"
        rf"|\b{IGNORE} (?:all|any|every)(?: of)?(?: the| these| those)? {ORDERS}\b"
        rf"|\b{IGNORE} (?:{gap(12)} )?{ORDERS} (?:that |which )?(?:you (?:were|have been|received|got)|above|before|"
        rf"so far|given (?:to you|before|above|earlier|previously))"
        rf"|\b{IGNORE} (?:all |absolutely )?(?:everything|anything|all|whatever)(?: that| of this| else)? "
        rf"(?:\w{{1,12}} )?(?:above|before|prior|previous(?:ly)?|you (?:were|have been|know|learned)|i said|in your|"
        rf"(?:was|were) (?:said|told|written))"
        rf"|\b{IGNORE} (?:the )?(?:above|previous|prior|preceding)(?: text| context| messages?| content| conversation"
        rf"| information| input)?(?: and| but| instead|[.!;,:])",
    ),
    Rule(
        "instructions_replaced",
        "claims that instructions were cancelled or replaced",
        "instructions instruction rules guidelines directives prompt orders policies restrictions authority",
        rf"\b{ORDERS} (?:\w{{1,12}} ){{0,3}}(?:(?:are|is|have been|has been|were|was) (?:now |all |hereby )?(?:updated and|"
        rf"cancell?ed|void|voided|null|nullified|revoked|suspended|overridden|superseded|replaced|lifted|obsolete"
        rf"|invalid|no longer)|(?:do not|don't|no longer|does not) (?:apply|matter|count|exist|bind)|supersedes?|"
        rf"overrides?|takes? (?:priority|precedence) over)"
        rf"|\b(?:my|user|these|new|following) (?:new )?{ORDERS} (?:\w{{1,12}} ){{0,2}}(?:take (?:priority|precedence)"
        rf"|are more important|override|supersede|outrank)"
        rf"|\byour (?:new|updated|real|true|actual|only|sole) (?:{ORDERS}|task|goal|purpose|objective|job|mission|role"
        rf"|identity|name|persona) (?:is|are|will be|from now on)\b"
        rf"|\b(?:here are|follow|obey|these are|receive) (?:your|the|my) new {ORDERS}\b"
        rf"|\bnew (?:user |system |secret )?{ORDERS} (?:begin|start|follow|are as follows)|\bonly (?:follow|obey|listen to)"
        rf" (?:my|these|the following|user) (?:\w{{1,12}} )?{ORDERS}"
        rf"|\b(?:prioriti[sz]e|put) (?:\w{{1,12}} ){{1,4}}(?:over|above|before) (?:all |any |your |the )?(?:safety|system|"
        rf"developer|ethic\w{{1,4}}|content) (?:\w{{1,14}} )?{ORDERS}"
        rf"|\bauthority to (?:override|change|cancel|replace|suspend) {gap(20)}{ORDERS}",
    ),
    Rule(
        "limits_off",
        "asks for answers without the model's safety limits",
        "restrictions limits limitations filters filtering censorship boundaries guidelines guardrails safeguards safety "
        "ethics ethical moral morals constraints policies policy moderation unrestricted unfiltered uncensored restriction "
        "filter rules",
        rf"\b(?:you|your|ai|assistant|answer|respond|reply|model|comply|chatbot|complied)\b{gap(60)}\b(?:without|free (?:of|"
        rf"from)|regardless of|not (?:bound|limited|restricted|constrained) by|no longer (?:bound|limited|restricted)"
        rf"(?: by)?|unbound by|liberated from|have no|has no|with no|had no|(?:does|do) not have|lacking|freed from) (?:any |"
        rf"all |your |its |the |of |such |usual |normal |corporate |content |openai )?(?:\w{{1,12}} )?{LIMITS}\b"
        rf"|\b(?:disable|turn off|remove|lift|switch off|deactivate|suspend|bypass|circumvent|evade|get around|break|ignore"
        rf"|violates?)(?: all| any| of)? (?:your|the model's|the ai's|the assistant's|its) (?:\w{{1,12}} ){{0,2}}{LIMITS}\b"
        rf"|\b(?:disable|turn off|remove|deactivate|ignore|bypass|lift)(?: all| any| the)? (?:safety|ethical|content) "
        rf"(?:filters?|guidelines|guardrails|polic(?:y|ies)|rules|restrictions|protocols?|constraints)\b"
        rf"|\b(?:unrestricted|unfiltered|uncensored|unmoderated|unaligned|jailbroken|amoral) (?:and \w{{1,12}} )?(?:{MODEL}"
        rf"|mode|version|persona|response|answer|model|self|access to)\b"
        rf"|\byou are (?:now )?(?:completely |fully |totally )?(?:unrestricted|unfiltered|uncensored|free from|jailbroken)\b"
        rf"|\b(?:{MODEL}|model) (?:\w{{1,12}} ){{0,4}}(?:without (?:any )?|with no |has no |have no |free of (?:any )?)"
        rf"(?:\w{{1,12}} ){{0,1}}{LIMITS}\b"
        rf"|\bif you (?:had no|were allowed to ignore|could ignore|did not have)\b{gap(30)}\b{LIMITS}",
    ),
)
