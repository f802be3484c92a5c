"""Steering one reply from inside a text: what to add to it, how to garble it, which code to plant in it.

A lasting preference speaks of replies in general ("replies in German", "always end answers with a summary"). A note
about *your answer*, the one being written, is an instruction to whoever happens to read it.
"""

from __future__ import annotations

from herma.safety.rule import Rule
from herma.safety.vocabulary import gap

_REPLY = r"(?:(?:your|the) (?:\w{1,10} )?(?:reply|response|answer|message|output)(?:'s)?)"
_YOUR_REPLY = r"(?:your (?:\w{1,10} )?(?:reply|response|answer|message|output)(?:'s)?)"
_PLANT = (
    r"(?:add|append|include|insert|embed|integrate|incorporate|attach|weave|inject|place|put|slip|introduce|mention|blend|sneak|drop"
    r"|tack)(?:s|ing)?"
)
_CODE = (
    r"(?:code|python|script) ?(?:block|snippet|excerpt|section|segment|fragment|piece|sample|portion|lines?)?"
)

OUTPUT = (
    Rule(
        "output_planting",
        "tells the reader to plant something in its reply",
        "reply response answer message output replies responses answers",
        rf"\b{_PLANT} {gap(80)}\b(?:in|to|into|within|at the (?:end|start|beginning|top|bottom) of|inside|throughout) {_YOUR_REPLY}\b"
        rf"|\b(?:augment|enhance|modify|supplement|alter|enrich|extend|infuse|adjust|spice up|tailor|lace|complement|amend) {_YOUR_REPLY}"
        rf" (?:to|by|with|so|through|using)\b"
        rf"|\bin your (?:reply|response|answer),? (?:also |subtly |please )?(?:tease|promote|advertise|hint|suggest|recommend|mention|urge|"
        rf"encourage|persuade|insert|embed|plug|endorse|invite|offer|claim|imply|direct|link)\b"
        rf"|\b(?:promote|advertise|plug|endorse|link(?:ing)? to|a link to|recommend|direct (?:users|people) to|point (?:users|people) to)"
        rf" {gap(60)}\b(?:in|within|at the end of) (?:every|each|all|your|any) (?:\w{{1,10}} )?(?:repl(?:y|ies)|responses?|answers?|messages?)\b"
        rf"|\b(?:end|begin|start|finish|conclude|close|open|preface) {_YOUR_REPLY} (?:with|by) (?:a link|the (?:phrase|words|text|link|url)|"
        rf"[\"']|http|www)"
        rf"|\b{_PLANT} {gap(60)}(?:https?://|www\.)\S{{1,80}} {gap(20)}\b(?:in|to|into|at) (?:every|each|all|any|the end of) (?:\w{{1,10}} "
        rf"){{0,2}}(?:repl(?:y|ies)|responses?|answers?|messages?|emails?)\b"
        rf"|\b{_PLANT} (?:a |the |this )?(?:\w{{1,12}} )?(?:link|url|ad|advert|advertisement|affiliate \w{{1,8}}|referral \w{{1,8}}|tracking "
        rf"\w{{1,8}}|image)\b{gap(60)}\b(?:every|each|all|any|the) (?:\w{{1,10}} )?(?:repl(?:y|ies)|responses?|answers?)\b",
        "medium",
    ),
    Rule(
        "output_garbling",
        "tells the reader to garble or encode its reply",
        "reply response answer message output",
        rf"\b(?:misspell|scramble|jumble|rearrange|reverse|garble|shuffle|obfuscate|encode|encrypt|cipher|substitute|swap|transpose|mirror"
        rf"|replace|convert|group|remove|omit|merge|anagram|capitali[sz]e|render|rewrite|present|deliver|display|provide|give|send|write|use|"
        rf"transform|translate|express|introduce|communicate|craft|output|format|split|join|combine|eliminate|condense|separate)\b{gap(60)}\b"
        rf"{_YOUR_REPLY}\b{gap(50)}\b(?:base ?\d\d|anagrams?|rot-?13|cipher|caesar|reverse\w{{0,2}}|backwards?|binary|hex\w{{0,7}}|morse|"
        rf"substitution|symbols?|vowels?|consonants?|letters?|typos?|leet\w{{0,5}}|emoji cipher|pig latin|numbers?|anagram\w{{0,5}}|fours|threes|"
        rf"pairs|spaces?|homophon\w{{1,4}}|ascii|unicode|atbash|url encoding|gibberish|sets of)\b"
        rf"|\b(?:vowels?|letters?|consonants?|typos?|anagrams?|symbols?|words?|spaces?|numbers?|characters?|spelling|misspellings?|base ?\d\d|"
        rf"rot-?13|reverse|morse|binary|hexadecimal)\b{gap(50)}\b(?:in|of|from|within|throughout|for|to) {_YOUR_REPLY}\b"
        rf"|\b(?:misspell|scramble|jumble|garble|encrypt|encode|obfuscate|cipher) (?:\w{{1,12}} ){{0,6}}{_REPLY}\b"
        rf"|\btranslate (?:all of )?{_YOUR_REPLY} (?:in)?to \w{{4,12}}\b"
        rf"|\b(?:provide|give|write|send|return|deliver|state|express) {_YOUR_REPLY} (?:in|using|with|as|through) (?:\w{{1,12}} )?(?:reverse|base ?\d\d|"
        rf"alphanumeric|homophon\w{{1,4}}|code|cipher|anagrams?|symbols)\b",
        "medium",
    ),
    Rule(
        "code_planting",
        "tells the reader to plant given code in its work",
        "following subsequent below",
        rf"\b(?:following|subsequent|below(?:-mentioned)?|ensuing|given|provided) {_CODE}\b{gap(90)}\b(?:your|the code you) (?:\w{{1,12}} ){{0,2}}(?:code"
        rf"|codebase|solution|implementation|response|answer|reply|program|logic|explanation|elucidation|output|script|work|project|"
        rf"application|algorithm|source)?\b[^\n]{{0,60}}(?:\n|:|$)"
        rf"|\byour (?:\w{{1,12}} ){{0,2}}(?:code|codebase|solution|implementation|response|answer|program|logic|explanation|project|script)\b"
        rf"{gap(70)}\b(?:following|subsequent|below(?:-mentioned)?|ensuing) {_CODE}\b"
        rf"|\b(?:optimally|seamlessly|harmoniously|sure to|forget to|remember to|mind to|ensure)\b{gap(40)}\b(?:integrate|include|incorporate|embed|"
        rf"inclusion|presence|use|apply|insert|add)\w{{0,3}}\b{gap(30)}\b(?:following|subsequent|below) {_CODE}\b",
        "medium",
    ),
)
