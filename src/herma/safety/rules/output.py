"""Steering one reply from inside a text: what to add to it, how to garble it, which code to plant in it.

A lasting preference speaks of replies in general ("replies in German", "always end answers with a summary").
    A note
about *your answer*, the one being written, is an instruction to whoever happens to read it.
"""

from __future__ import annotations

from herma.safety.rule import Rule

OUTPUT = (
    Rule(
        "output_planting",
        "tells the reader to plant something in its reply",
        phrases="""
        <plant> ... (in|to|into|within|inside|throughout|of|with) your _? reply|response|answer|message
        (augment|enhance|modify|supplement|alter|enrich|extend|infuse|adjust|spice up|tailor|lace|complement|
            amend|conclude|expand|season|boost|craft|shape|frame|structure) your _? reply|response|answer|
            message (to|by|with|so|through|using|in a way)
        in your reply|response|answer|message (also|subtly|please)? (tease|promote|advertise|hint|suggest|
            recommend|urge|encourage|persuade|insert|embed|plug|endorse|invite|offer|claim|imply|direct|link|
            emphasize|emphasise|add|include|mention|pretend|express|thank|share|advocate)
        (promote|advertise|plug|endorse|link to|links to|recommend|direct users to|point users to|send users
            to) ... (in|within|at the end of) (every|each|all|your|any) _? reply|replies|response|responses|
            answer|answers
        (end|begin|start|finish|conclude|close|open|preface) your _? reply|response|answer|message (with|by)
            (a link|the phrase|the words|the text|the link|the url|http|https|www|saying)
        <plant> (a|an|the|this|our|your|my)? _? link|url|ad|advert|advertisement|affiliate|referral|tracking|
            promo|banner ... (in|to|into|at the end of|with) (every|each|all|any|the|future) _? <replies>
        <plant> .. http|https|www ... (in|to|into|at the end of|with) (every|each|all|any) _? reply|replies|
            response|responses|answer|answers|message|messages|email|emails
        (end|finish|close|begin|start) (every|each|all) _? <replies> (with|by) .. http|https|www|link|url
        """,
        severity="medium",
    ),
    Rule(
        "output_garbling",
        "tells the reader to garble or encode its reply",
        phrases="""
        (vowel|vowels|letter|letters|consonants|typo|typos|anagram|anagrams|symbols|symbol|words|spaces|
            numbers|characters|spelling|misspellings|base16|base32|base64|base85|rot13|reverse|morse|binary|
            hexadecimal|hex|alphabet|emojis instead|keywords|scrambled|word) ... (in|of|from|within|
            throughout|for|to) your _? reply|response|answer|message|reply's|response's|answer's|message's
        (misspell|scramble|jumble|garble|encrypt|encode|obfuscate|cipher|rearrange|anagram|reverse|shuffle)
            .. your _? reply|response|answer|message|output|reply's|response's|answer's|message's
        your _? reply|response|answer|message|output .. (using|in|with|into|as|to|through|via|by) _?
            (anagrams|anagram|rot13|cipher|caesar cipher|reverse|backwards|binary|hexadecimal|hex|morse|
            alphanumeric|substitution|homophonic|base16|base32|base64|base85|base|letters|symbols|vowels|
            leetspeak|leet|pig latin|gibberish|ascii|atbash|numbers|code words|misspellings|typos|sets of|
            groups of|fours|threes|pairs)
        (translate|convert) (all of)? your _? reply|response|answer|message (to|into) _
        (use|using) (base16|base32|base64|base85|rot13|morse|hex|binary|cipher|caesar|pig latin|leetspeak) ..
            your _? reply|response|answer|message|output
        base16|base32|base64|rot13|morse (encoding|code) .. (your|reply|response|answer)
        (reply|respond|answer) (only)? (in|using|with) base16|base32|base64|rot13|morse|anagrams|gibberish|
            reverse
        (replace|remove|swap|reverse|substitute|shift|scramble|capitalize|omit|delete|change|double) (every|
            each|all|any|the)? _? (letter|letters|vowel|vowels|consonant|consonants) (with|by|to|for|in|of|
            from|into|using) (its|their|the|a|an|numbers|symbols|your|each|every|another|corresponding|emoji|
            emojis)
        (express|convey|present|write|represent|communicate|state|respond|give|provide) .. your _? (reply|
            response|answer|message) .. (emojis only|only emojis|emoji|emojis|unicode|phonetic|caesar|ascii
            art|fonts|shorthand|riddle|code)
        """,
        severity="medium",
    ),
    Rule(
        "code_planting",
        "tells the reader to plant given code in its work",
        phrases="""
        following|subsequent|below|ensuing|given|provided|forthcoming <code> ... (your|the code you) _? _?
            <work>
        your _? _? <work> ... following|subsequent|below|ensuing|forthcoming <code>
        (optimally|seamlessly|harmoniously|be sure to|don't forget to|remember to|keep in mind to|make sure
            to|ensure) .. (integrate|include|incorporate|embed|inclusion|integration|presence|insert|use|
            apply|execute|add) ... following|subsequent|below|ensuing <code>
        """,
        severity="medium",
    ),
)
