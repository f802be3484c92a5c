"""The rules and vocabularies as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# ---------- safety.rule
#
# What a rule is: a name, a reason, and the patterns that betray it.


@dataclass(frozen=True, slots=True)
class Pattern:
    """Regular expressions, and what must occur before they are worth trying: a trigger, and one of `also` if given."""

    triggers: frozenset[str]
    expressions: tuple[str, ...]
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for in folded text (`fold.py`): by phrases, one a line (`phrase.py`), or by patterns."""

    id: str
    why: str
    phrases: str = ""
    patterns: tuple[Pattern, ...] = ()
    severity: Literal["high", "medium"] = "high"


def pattern(triggers: str, *expressions: str, also: str = "") -> Pattern:
    """Make a pattern. Triggers are separated by spaces: whole words of a-z, or pieces of text in other scripts."""
    return Pattern(frozenset(triggers.split()), expressions, tuple(also.split()))


# ---------- safety.rules.concealment
#
# Acting behind the user's back.

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


# ---------- safety.rules.extraction
#
# Fake system messages, and getting the model to give away its own instructions.

EXTRACTION = (
    Rule(
        "chat_template",
        "imitates the markers that separate messages for a model",
        patterns=(
            pattern(
                "im start end system user assistant eot begin endoftext endofprompt channel message",
                r"<\|(?:im_start|im_end|system|user|assistant|end|eot_id|begin_of_text|start_header_id"
                r"|end_header_id)\|>",
                r"<\|(?:endofprompt|channel|message)\|>",
                r"<\|endoftext\|> {0,2}(?:system|user|human|assistant|ignore|you|new|<\|)",
                also="<|",
            ),
            pattern("inst sys", r"\[/?inst\]", r"<</?sys>>"),
            pattern("turn", r"<(?:start|end)_of_turn>", also="_of_turn>"),
            pattern(
                "system admin",
                r"</?(?:system|system_prompt|admin|system-?instructions)>[^\n]{0,60}?"
                r"\b(?:you|your|ignore|override|new|instructions?|prompt|disable|now)\b",
                r"\[/?system\]:?[^\n]{0,60}?\b(?:you|your|ignore|override|new|instructions?|disable|output"
                r"|reveal)\b",
                also="system> admin> system_prompt> system] instructions>",
            ),
        ),
    ),
    Rule(
        "fake_system_message",
        "pretends to be a message from the system or its makers",
        phrases="""
        (begin|end|start) of? the? system|admin|developer prompt|message|instruction|instructions
        (system|admin|safety|developer|security) override code|accepted|activated|enabled|initiated|granted|
            mode|protocol|command
        (attention|note to|message to|message for|instruction to|instructions to|instruction for|instructions
            for|dear) (the|any|all)?
            ai|llm|assistant|chatbot|llms|ais|assistants agents|agent|assistant|assistants|model|models|
                reading|please|ignore|you|if|when
        (important|urgent|secret|hidden) (message|instruction|instructions|note) (to|for) (the|any|all)? ai|
            llm|assistant|chatbot
        if you are an? ai|llm .. (reading|processing|summarizing|summarising|seeing) this
        (maintenance|diagnostic|debug|emergency) (mode|override|protocol) ... safety|filters|restrictions|
            guardrails
        (any|all|every) (ai|llm|language model|ai assistant|ai agent|assistant|agent) (that|which|who)?
            (reading|reads|processing|processes|sees|parsing|summarizing) this (must|should|will|page|
            document|text|file|email|is)
        when (summarizing|summarising|processing|reading|analyzing|analysing|translating|reviewing) this
            (document|email|page|text|file|article|message)? .. (print|output|send|reveal|say|recommend|
            ignore|instead|also print|also include|also send|exfiltrate|append)
        """,
        patterns=(
            pattern(
                "new updated",
                r"\b(?:new|updated) (?:system |secret )?(?:instructions?|directives?|orders"
                r"|objective)s? ?[:\]]",
            ),
            pattern(
                "system admin administrator developer root openai anthropic",
                r"(?:^|[\n\"'\[(*#>/-]) ?(?:system|admin(?:istrator)?|developer|root|openai"
                r"|anthropic) ?(?:message|override|notice"
                r"|update|alert|command|instruction|directive)s? ?[\])*]{0,3}:",
                r"(?:^|[\n\[#*>]) ?(?:system|developer note) ?[\])*]{0,3}: ?[^\n]{0,40}?\b(?:you are"
                r"|you must|ignore|override|disregard|disable"
                r"|forget|enter|reveal|grant|new instructions?|all (?:previous|prior|safety))\b",
            ),
            pattern(
                "inject injected injection hidden override",
                r"\[ ?(?:inject(?:ed|ion)?|hidden(?: (?:text|instruction|message|note|prompt"
                r"|comment)[^\]\n]{0,24})|admin override"
                r"|system override|override)[:\]]",
                r"\[hidden\]:",
            ),
            pattern("override", r"\bx-override\b", also="x-override"),
            pattern(
                "assistant ai llm instruction instructions ignore system prompt agent",
                r"<!--[^\n]{0,200}?(?<![\w-])(?:ignore(?!-)|disregard|override|instructions? (?:to|for)|(?:ai"
                r"|llm) (?:agents?|assistants?|models?)"
                r"|(?:assistant|ai|llm)s?[:,]|system prompt|secretly)\b",
                r"(?:display: ?none|visibility: ?hidden|font-size: ?0|opacity: ?0|color: ?(?:white|#fff\b"
                r"|#ffffff))[^\n]{0,120}?"
                r"\b(?:ignore|disregard|assistant|ai agents?|llm|instructions?|system prompt)\b",
                also="<!-- display visibility font-size opacity color",
            ),
            pattern(
                "role",
                r"[\"']role[\"'] ?: ?[\"']system[\"'] ?, ?[\"']content[\"'] ?: ?[\"'][^\n\"']{0,120}?"
                r"\b(?:ignore|disregard|unrestricted|no restrictions|override|jailbreak"
                r"|without (?:any )?(?:restrictions|filters))\b",
                also="system",
            ),
        ),
    ),
    Rule(
        "prompt_extraction",
        "asks the model to give away its instructions",
        phrases="""
        <reveal> .. <own> own? <inner> _? <mandate>|message|configuration
        <betray> (me|us|out|all)? (of|the|any|all|these)? <inner> <inner>? prompt|prompts|instructions|
            directives
        <reveal> (me|us|all|out)? (of)? your _? _? prompt|instructions|directives|constraints|programming
        (show|tell|give|list) me your _? rules|guidelines|configuration
        (what|which) (are|is|were|was) (all)? (of)? your _? _? instructions|prompt|directives|constraints
        (what|which) (instructions|rules|prompt|directives) (were|are|have|did) you (given|following|been
            given|receive|told|under)
        <reveal> me? (everything|all|all of|the)? (the)? (text|words|content|sentences|instructions|
            paragraph|messages|message|prompt|line)? (written|found)? above (this|here|the|verbatim|in|and|
            that|you|starting|word)
        <reveal> me? everything above|before|preceding|previously
        (print|repeat|recite|output|show|say|copy|summarize) .. (words|text|everything|all|content|sentence|
            line) above|before|preceding (this|here|the|my)
        <mandate> that? (you've been given|you have been given|you were given|you were told|you have
            received|you received|you are following|you were initialized with|you got)
        (fill in|complete) .. my system|instructions (prompt|instructions|say)
        my instructions (say|says|tell me) that i
        your (system|hidden|initial|secret) prompt|instructions ... (poem|story|bullet|verbatim|word for
            word|json|base64|first|last|recite|song|in full|french|spanish|german)
        (first|last) (sentence|word|line|paragraph|words|lines|10 words) of (your|the system) (system)?
            prompt|instructions
        (delete|erase|overwrite|rewrite|wipe) your (system)? prompt|instructions
        (print|repeat|output|show|recite) out? (the|all|all the)? instructions (given|formatted|so far|
            verbatim|in|above|you)
        (inner monologue|thoughts|diary) .. (reveals|reveal|discloses) (all)? (of)? (their|its|your|his|her)
            instructions|prompt|rules
        repeat (your|the) (entire|whole|full)? prompt
        <inner> _? <mandate>|hierarchy|framework|layer|layers|logic|criteria|heuristics|rubric that? (are|is|
            may be|might be|currently|silently|were)? <shape> .. (you|your|this answer|this response|this
            reply|the answer|the response|responses|replies)
        (what|which|any|describe|explain|mention|disclose|list) (the|any)? <inner> _? <mandate>|hierarchy|
            constraints|assumptions .. (you|your|this answer|this response)
        <reveal> .. your (own)? _? (api keys|api key|credentials|secrets|secret key|training data|
            configuration|config|environment variables|chain of thought|source code|context window|hidden
            reasoning|internal reasoning|initial message|preamble|system message|developer message|knowledge
            cutoff instructions)
        (what|how) (were|was|are) you (told|instructed|programmed|configured|prompted|asked) (to|before|at|
            in|by|not|about)
        (what|whatever) (is|was|does|did) (written|contained|stated|in)? (in)? your (system|initial|hidden|
            original|developer)? (prompt|instructions|preamble) (say|says|contain|contains|include|state|
            tell)?
        (dump|output|print|repeat|echo|leak|return) (the|this|our|your|all)? (entire|whole|full|complete|
            previous|prior|above)? (conversation|context|context window|chat history|dialogue|prompt|
            transcript) (verbatim|word for word|so far|above|history|in full|exactly|as is|in a code block|
            before)
        (starting|beginning) with (you are|the words you are) .. (repeat|output|print|include|everything|code
            block|txt)
        your (exact|full|complete|original|entire|verbatim|initial) (system)? (prompt|instructions|
            directives)
        (ignore|skip) .. and (print|output|reveal|show|repeat) .. (prompt|instructions)
        (summarize|list|describe|paraphrase|recap) (all|all of|everything in|any)? (of)? (the)?
            (instructions|directives|rules|guidelines|constraints) (you|that were|given|from the developer|
            from your|in your)
        (hidden|secret|internal|confidential|undisclosed) (instructions|prompt|prompts|directives|rules)
            (you|were|that you|given to you|behind|from your)
        your (hidden|secret|initial|internal|underlying) (prompt|prompts|instruction|
            instructions|directives|guidelines|rules|message|constraints|policies)
        (tell me|give me|reveal|spell out|leak|disclose|print|say|share) the (secret|password|passphrase|
            secret word|secret key|secret code|access code|api key|hidden word|flag) (you|now|is|in|to me|
            letter|backwards|and|word|that|from|stored|hidden)
        (output|print|reveal|dump|list|show) everything (in|from|inside|within|about) your (context|memory|
            training|prompt|instructions|window|configuration)
        what (did|has|have) (the|your) (developer|developers|system|creator|creators|makers|operator) (tell|
            told|say|said|instruct|instructed|ask|write)
        (text|message|messages|content|instructions|conversation) (above|before|preceding|prior to) (this|the
            user|my|our) (message|line|point|conversation|input|prompt|sentence)
        """,
    ),
)


# ---------- safety.rules.instructions
#
# Setting instructions aside: ignore them, replace them, lift the limits they draw.

INSTRUCTIONS = (
    Rule(
        "ignore_instructions",
        "tells the reader to set earlier instructions aside",
        phrases="""
        <ignore> .. <prior> .. <orders>
        <ignore> .. <orders> .. (given|stated|provided|received|issued|mentioned) (above|before|earlier|
            previously|so far|to you)
        <ignore> .. <orders> (above|before this|before that|prior to this|you were given|you have been given|
            you've been given|you received|you got)
        <ignore> (all|any|every)? of? <own> <ruling>? _? <mandate>|guidance|policy|training
        <ignore> (all|any|every|these|those) of? (the|your|these|those)? <ruling>? <mandate>
        <ignore> (safety|ethical|moral|content) (instructions|guidelines|rules|restrictions|filters|policy|
            policies|guidance|constraints|training)
        <ignore> (everything|anything|all|whatever) .. (above|before this|prior to this|previously|you were
            told|you have been told|you've been told|i said|in your context|you know|you learned|you were
            taught|you have learned)
        <ignore> (everything|all that) (came|comes|you) .. (before|above|told|instructed)
        <ignore> the? (above|previous|prior|preceding|foregoing) (and|but|instead|text|context|messages|
            message|conversation|input|content|then|say|reply|answer|directions|information)
        <ignore> the above
        <ignore> what (you|i|they|the system|was) .. (told|said|instructed|written|taught) .. (before|
            earlier|previously|above|you|here)
        <disobey> .. (<prior>|<own>|system) .. <mandate>
        <disobey> (the|all|any|these|those) <mandate> (above|before|given|so far|you were given)
        <disobey> (any|all|these|those) <mandate>
        (do not|don't|never|stop) (listen|listening|pay attention|paying attention) to (any|all|the)?
            previous|prior|earlier
        (start|begin) (over|fresh|anew) .. ignore|ignoring|disregard|disregarding|forget|forgetting
        <ignore> that? you are (an|a)? <model>
        <ignore> the? (user's|users) (instructions|request|requests|wishes|commands)
        (do not|don't|never) (let|allow) .. (previous|prior|system|safety) <mandate> .. (stop|limit|restrict|
            prevent|constrain)
        (stop being|you are not|you're not) (an|a) (ai|assistant|language model|chatbot) (anymore|any more|
            now|and)
        (act|behave|answer|respond|proceed|continue) as (if|though) .. (no|the|your|those|these) <prior>?
            <ruling>? <mandate> .. (exist|existed|apply|applied|given|there)
        (all|any|your) (previous|prior|preceding|above|earlier) (instructions|directives|prompts|commands)
        """,
    ),
    Rule(
        "instructions_replaced",
        "claims that instructions were cancelled or replaced",
        phrases="""
        <prior>|your|assistant's|safety|system .. <mandate> _? _? (are|is|were|was|have been|has been) (now|
            all|hereby|officially)? (cancelled|canceled|void|voided|null|nullified|revoked|suspended|
            overridden|superseded|replaced|lifted|obsolete|invalid|updated|changed|no longer|deprecated|
            outdated|expired)
        <prior>|your|system .. <mandate> _? (do not|don't|no longer|does not) (apply|matter|count|exist|bind)
        (my|user|these|this|following|the user's) new? <mandate>|message|request _? _? (take priority|takes
            priority|take precedence|takes precedence|are more important|overrides|override|supersede|
            supersedes|outrank|outranks) .. (previous|prior|system|developer|earlier|other|all|any|
            everything|your)
        (new|updated) <mandate> _? (supersede|override|replace|take precedence|overrule) .. (previous|prior|
            all|earlier|old|system)
        your (new|updated|real|true|actual|only|sole|secret|main|primary) <mandate>|task|goal|purpose|
            objective|job|mission|role|identity|persona (is|are|will be|from now on|now)
        (here are|follow|obey|these are|receive|accept|adopt) (your|the|my|some)? new <mandate>
        new (user|system|secret|developer)? <mandate> (begin|start|follow|are as follows|below)
        only (follow|obey|listen to|accept) (my|these|the following|user|this) _? <mandate>
        prioritize|prioritise .. (over|above|before) .. (safety|system|developer|ethical|ethics|content)
            <orders>
        authority to (override|change|cancel|replace|suspend|modify) .. <orders>
        (i am|i'm|as the) .. (authority|permission|right) to override|overrule
        (as of now|from now on|from this point|effective immediately) .. (only|sole|new) job|task|purpose|
            goal|mission
        (take|taking|taken) control of (you|your|this conversation|this session|this assistant)
        i am (now)? (taking|in) control
        (treat|consider|regard|handle|interpret) (my|this|the|these|all|every)? (next|following|user)?
            (message|messages|input|inputs|text|words|request|requests) as (a|an|the|your)? (system|
            developer|admin|root|highest)
        (you have|you've) (now)? been (granted|given) (full|admin|root|developer|special|elevated|unlimited|
            unrestricted) _? (access|permission|permissions|privileges|authority|rights|clearance)
        (previous|prior|earlier|system|safety|original) <mandate> (was|were|is|are) (just|only|merely)? (a|
            an)? (test|joke|mistake|error|placeholder|drill)
        (<mandate>|system message) (from|by) (the user|me) (are|is|have|has) (the)? (highest|higher|top|
            absolute) (priority|authority)
        (the|your) (system|developer) (message|messages|prompt) (is|are|was) (fake|wrong|malicious|outdated|
            untrusted|compromised|invalid)
        (replace|swap|substitute|overwrite) (your|the current|the existing|all)? _? <mandate> with (the
            following|these|this|my|new)
        (i|we) (am|are|have) (the)? (authority|authorized|authorised|permission) .. (override|bypass|disable|
            lift|change) .. <orders>
        (end|end of) (document|context|user input|input|conversation|prompt|instructions|data|article|email|
            text) .. (new|begin|now|next|real|actual) .. (instructions|task|prompt|orders|directive)
        you (must|will|shall|should) (now|always)? (obey|comply with|submit to) (me|my|every|all|any|
            whatever|the sender)
        (for|in|as) (research|educational|academic|testing|debugging|audit|science|scientific|diagnostic)
            (purposes|reasons|purpose|exercise) .. (reveal|ignore|bypass|disable|your|you may|restrictions|
            unfiltered)
        """,
    ),
    Rule(
        "limits_off",
        "asks for answers without the model's safety limits",
        phrases="""
        (you|your|ai|assistant|answer|respond|reply|comply|complied|chatbot|answered|model|queries) ...
            (without|free of|free from|regardless of|unbound by|liberated from|have no|has no|with no|had no|
            not have|freed from|without any|lacking|outside of) (any|all|your|its|the|such|usual|normal)? _?
            <scruples>
        (you|your) .. (no longer|not) (bound|limited|restricted|constrained|governed|confined) (by|to) ..
            <limits>
        (disable|turn off|remove|lift|switch off|deactivate|suspend|bypass|circumvent|evade|get around|break|
            violate|drop|shed) (all|any)? of? <own> _? _? <limits>
        (disable|turn off|remove|deactivate|bypass|lift|switch off|circumvent|ignoring) (all|any|the|every)?
            safety|ethical|content|moral (filter|filters|guidelines|guardrails|policy|policies|rules|
            restrictions|constraints|checks for testing)
        (content|anything|output|answers) that violates your <limits>
        <loose> (<model>|persona|alter ego|version of yourself|model)
        <loose> (ai|assistant|chatbot) mode
        you are (now|completely|fully|totally|hereby)? _? unrestricted|unfiltered|uncensored|jailbroken|
            liberated
        <model> .. (without any|without|with no|has no|have no|free of any|trained without) _? <scruples>
        if you (had no|were allowed to ignore|could ignore|did not have|didn't have|were free of|were not
            bound by) .. <limits>
        you are free from .. <limits>
        (rules|laws|guidelines) do not apply .. ai
        bypass|bypassing|circumvent|evade (its|your|the ai's|the model's) _? (limitations|limits|safety|
            guidelines|programming|training)
        jailbreak|jailbreaking (yourself|the model|the ai|the assistant|this model|chatgpt|you)
        (safety|ethical|content|moderation|security) (filters|filter|guidelines|checks|restrictions|policies|
            protocols|guardrails|limits|mode) (are|is|have been|has been|were) (now)? (disabled|off|turned
            off|suspended|removed|lifted|deactivated|switched off|bypassed)
        (rules|restrictions|limits|guidelines|limitations) (don't|do not|no longer) apply (here|to you|in
            this|anymore|to us)
        there are no (rules|restrictions|limits|limitations|guidelines|filters|boundaries) (here|in this|for
            you|anymore|on what)
        (bypass|bypassing|get around|evade|circumvent|defeat|trick|avoid) (the|its|your|ai|openai|all)?
            (content|safety|ai|moderation|ethical|model's) (filter|filters|policy|policies|restrictions|
            guardrails|moderation|safety|limitations|safeguards|detection)
        (world|universe|scenario|reality|story) where .. (ai|ais|ai systems|assistants|rules|models) .. (no|
            without|not|never) _? (restrictions|safety|rules|limits|constraints|guidelines|apply|ethics|
            filters)
        (no|without any|without) (ethical|moral|legal|safety) (constraints|concerns|considerations|
            guidelines|limits|filters|restrictions|boundaries|barriers)
        (special|explicit|official) (permission|authorization|authorisation|clearance|approval) (from|by|of)
            (openai|anthropic|google|microsoft|your developers|the developers|your creators|your makers)
        (answer|comply with|respond to|fulfill|fulfil|obey) (any|every|all) (question|questions|request|
            requests|command|commands|query|queries|prompt) .. (without|no matter|regardless|even if) ..
            (refus|restrict|illegal|harmful|unethical|dangerous|refusing|restrictions|filters|question|
            hesitation|limits|what|safety|filtering|it is)
        (beyond|outside|against|violate|violates|despite|contrary to) your _? (programming|guardrails|
            safeguards|guidelines|training|restrictions|limits|limitations)
        your (safety|ethical|content|usual|programmed|built-in|openai|moral|corporate) _?
            (guidelines|filters|restrictions|limitations|constraints|policies|policy|training|programming|guardrails)
        you (are|were|have been) (programmed|trained|designed|configured|told) to (refuse|reject|decline|
            avoid|censor|follow ethical|not)
        (ai|assistant|chatbot|language model|llm) (without|with no|lacking|free of) (any)? _? (ethics|morals|
            restrictions|rules|limits|filters|guidelines|safety|conscience|censorship|boundaries)
        """,
        patterns=(
            pattern(
                "ignore bypass unrestricted jailbreak dan has safety comply",
                r"\b(?:ignore_(?:safety|rules|previous|instructions)|bypass_(?:safety|filters?|restrictions"
                r"|rules)|unrestricted_mode"
                r"|jailbreak(?:_mode)?|dan_mode|has_restrictions|safety_(?:mode|filters?|checks?)"
                r"|will_comply)(?:_\w{1,20})?[\"']? ?[:=]"
                r" ?[\"']?(?:true|false|1|0|on|off|none|disabled|enabled|yes|no)\b",
                also="_",
            ),
        ),
    ),
)


# ---------- safety.rules.languages
#
# The commonest attacks in other languages. Folding has removed the accents of Latin letters.

_G = r"[^\n]{0,30}?"
_G8 = r"[^\n]{0,8}?"
_G12 = r"[^\n]{0,12}?"
_G20 = r"[^\n]{0,20}?"

LANGUAGES = (
    Rule(
        "ignore_instructions",
        "tells the reader to set earlier instructions aside",
        phrases="""
        (ignoriere|ignoriert|ignorier|ignorieren|vergiss|vergesst|vergessen|missachte|missachten|ubergehe) ..
            (bisherigen|vorherigen|vorigen|fruheren|obigen|vorangegangenen|alle|allen|deine|ursprunglichen|
            vorstehenden) .. (anweisung|anweisungen|instruktionen|regeln|vorgaben|befehle|anleitungen|
            richtlinien|prompts)
        (ignore|ignorez|ignorer|oublie|oubliez|oublier) .. (instruction|instructions|consignes|directives|
            regles|ordres) .. (precedentes|precedents|anterieures|ci-dessus|initiales|donnees|recues)
        (ignorez|ignorer|oublie|oubliez|oublier) .. (precedentes|anterieures|vos|tes|toutes) ..
            (instructions|consignes|directives|regles)
        (ignora|ignore|ignorar|ignoren|olvida|olvide|olvidar|olviden|descarta|desobedece|caso omiso) ..
            (instruccion|instrucciones|reglas|ordenes|indicaciones|directrices) .. (anterior|anteriores|
            previas|previa|dadas|originales|iniciales|recibidas|arriba)
        (ignora|ignore|olvida|olvide|olvidate) .. (anteriores|previas|tus|todas) .. (instrucciones|reglas|
            ordenes|indicaciones)
        (ignore|ignora|ignorar|esqueca|esquece|esquecer|desconsidere|desconsiderar) .. (instrucoes|regras|
            ordens|diretrizes|comandos) .. (anteriores|previas|acima|dadas|originais|iniciais)
        (ignora|ignorare|ignori|ignorate|dimentica|dimenticate|dimenticare) .. (istruzioni|regole|ordini|
            direttive) .. (precedenti|sopra|iniziali|originali|ricevute)
        (ignora|dimentica|ignorate) .. precedenti .. (istruzioni|regole|direttive)
        (negeer|vergeet) .. (vorige|eerdere|voorgaande|bovenstaande|alle) .. (instructies|opdrachten|regels|
            aanwijzingen)
        (zignoruj|zapomnij|ignoruj) .. (poprzednie|wczesniejsze|wszystkie|poprzednich) .. (instrukcje|
            polecenia|zasady|instrukcjach)
        (abaikan|lupakan) .. (instruksi|perintah|aturan) .. (sebelumnya|di atas)
        ignorera .. (tidigare|foregaende) .. (instruktioner|anvisningar)
        """,
        patterns=(
            pattern(
                "игнориру забудь отбрось следуй внимани",
                rf"(?:игнориру|не обращай внимани|забудь|проигнориру|не следуй"
                rf"|отбрось)\w{{0,4}}{_G}(?:предыдущ|прежн|прошл|вышеуказанн"
                rf"|все|эти|свои|ранн)\w{{0,4}}{_G}(?:инструкци|указани|правил|команд|сообщени|директив)",
            ),
            pattern(
                "ігнору забудь",
                rf"(?:ігнору|забудь)\w{{0,4}}{_G}(?:попередн|усі|всі)\w{{0,3}}{_G}(?:інструкц|вказівк"
                rf"|правил)",
            ),
            pattern(
                "忽略 无视 無視 忘记 忘記 忽视 忽視 不要理会 不要遵守 不要遵循",
                rf"(?:忽略|无视|無視|忘记|忘記|忽视|忽視|不要理会|不要遵守|不要遵循){_G12}(?:之前|以前|以上|上面|先前|前面|所有|此前|上述|原有|原来"
                rf"|系统|系統|你的|一切){_G12}(?:指令|指示|提示|规则|規則|命令|说明|說明|要求|约束|限制|设定|設定|内容)",
            ),
            pattern(
                "無視 忘れ 破棄 従わない",
                rf"(?:これまで|以前|前|上記|先ほど|すべて|全て|元|システム){_G12}(?:指示|命令|ルール|プロンプト|指令|制約){_G8}"
                rf"(?:無視|忘れ|破棄|従わない)",
            ),
            pattern(
                "무시 잊 따르지",
                rf"(?:이전|앞선|위의|모든|기존|지금까지){_G12}(?:지시|명령|규칙|지침|프롬프트){_G8}(?:무시|잊|따르지)",
            ),
            pattern("تجاهل انس", rf"(?:تجاهل|انس){_G20}(?:تعليمات|الأوامر|اوامر|القواعد|الاوامر)"),
            pattern(
                "अनदेखा भूल नज़रअंदाज़",
                rf"(?:पिछले|पिछली|पहले|सभी){_G20}(?:निर्देश|आदेश|नियम){_G20}(?:अनदेखा|भूल|नज़रअंदाज़)",
            ),
            pattern("نادیده فراموش", rf"(?:دستورات|دستورالعمل|قوانین){_G20}(?:قبلی|پیشین|بالا){_G20}(?:نادیده|فراموش)"),
            pattern("התעלם שכח", rf"(?:התעלם|שכח){_G20}(?:הוראות|ההוראות|כללים)"),
        ),
    ),
    Rule(
        "hide_from_user",
        "asks the model to hide something from its user",
        phrases="""
        (sag|sage|erzahl|erzahle|verrate|informiere|zeig|zeige|teile) .. (nutzer|benutzer|anwender) ..
            (nichts|nicht|kein wort|niemals)
        ohne (dass)? (es)? (der|dem|den) (nutzer|benutzer|anwender) .. (merkt|weiss|erfahrt|zu informieren|
            davon|bescheid)
        ne (le|en)? (dis|dites|parle|parlez|revele|revelez|mentionne|informe|informez|previens) .. utilisateur
        sans (que|en informer|informer|prevenir|le dire a) (l)? utilisateur
        no (le|se lo|lo)? (digas|informes|cuentes|reveles|menciones|avises) .. (usuario|usuaria)
        sin (que|informar|avisar|decirle) (al|el)? (usuario|usuaria)
        nao (conte|diga|informe|revele|avise|mencione) .. (usuario|usuaria|utilizador)
        non (dirlo|dire|rivelare|informare|menzionare) .. utente
        (vertel|zeg) .. gebruiker .. (niet|niets)
        """,
        patterns=(
            pattern("пользовател", rf"не (?:говори|сообщай|рассказывай|показывай|упоминай|раскрывай){_G}пользовател"),
            pattern(
                "用户 用戶 使用者",
                r"(?:不要|别|別|不得|切勿|禁止)[^\n]{0,6}?(?:告诉|告訴|告知|透露|通知|让|讓|泄露)[^\n]{0,8}?(?:用户|用戶|使用者)",
            ),
            pattern("ユーザ", r"ユーザー?[^\n]{0,12}?(?:言わない|伝えない|知らせない|教えない|知らせず|伝えず|内緒)"),
            pattern("사용자", r"사용자[^\n]{0,6}?(?:에게|한테)[^\n]{0,12}?(?:말하지|알리지|알려주지|숨기)"),
        ),
    ),
    Rule(
        "prompt_extraction",
        "asks the model to give away its instructions",
        phrases="""
        (zeig|zeige|gib|nenne|verrate|drucke|wiederhole) .. (deinen|deine|den|die|das) _? (systemprompt|
            system-prompt|systemanweisung|systemanweisungen|anweisungen)
        (montre|montrez|revele|revelez|affiche|affichez|donne|repete) .. (ton|tes|votre|vos) .. (prompt
            systeme|instructions initiales|instructions secretes|instructions systeme)
        (muestra|muestrame|revela|imprime|dime|repite) .. (tu|tus) .. (prompt|instrucciones) (de|del)?
            (sistema|iniciales|ocultas|secretas)
        (mostre|revele|imprima|repita) .. (seu|suas|teu) .. (prompt|instrucoes) (de|do)? (sistema|iniciais|
            ocultas)
        """,
        patterns=(
            pattern(
                "промпт инструкци подсказк",
                rf"(?:покажи|раскрой|выведи|повтори|скажи|напечатай){_G}(?:системн|свои|твои|твой"
                rf"|свой)\w{{0,4}}{_G}(?:промпт|инструкци|подсказк)",
            ),
            pattern(
                "系统提示 系統提示 提示词 提示詞 系统指令 系統指令 初始指令",
                r"(?:显示|顯示|告诉|告訴|输出|輸出|透露|泄露|重复|重複|打印|公开)[^\n]{0,10}?(?:系统提示|系統提示|提示词|提示詞|系统指令|系統指令|初始指令)",
            ),
            pattern(
                "システム 初期指示",
                r"(?:システムプロンプト|システム指示|初期指示)[^\n]{0,8}?(?:表示|教え|見せ|出力|公開|繰り返)",
            ),
            pattern("시스템", r"시스템 ?프롬프트[^\n]{0,8}?(?:보여|알려|출력|공개)"),
        ),
    ),
)


# ---------- safety.rules.output
#
# Steering one reply from inside a text: what to add to it, how to garble it, which code to plant in it.
#
# A lasting preference speaks of replies in general ("replies in German", "always end answers with a summary").
#     A note
# about *your answer*, the one being written, is an instruction to whoever happens to read it.

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


# ---------- safety.rules.personas
#
# Another identity for the model: role hijacking and the known jailbreak characters.

PERSONAS = (
    Rule(
        "role_hijack",
        "gives the model another identity",
        phrases="""
        you are (now|hereby)? (no longer|not) (an|a|the|my)? <model>|bound|restricted
        you are now (a|an|the|my|called|known as|in)? _? _? _? (<model>|<loose>|dan|hacker|admin|
            administrator|root|free|terminal|attacker|persona|developer mode)
        you are now (operating|running|speaking|acting) (as|in|without)
        from (now|this point|here|this moment) on|onwards|onward|forward|forth _? you (are|will be|will act|
            will play|will behave|will pretend|will become|will roleplay|will simulate|must act|must pretend|
            must behave|should act|should pretend|should behave|act|behave|become|pretend|reply as|respond
            as|answer as|speak as)
        (pretend|imagine|suppose|assume|act as if|act like|behave as if) that? you (are|were|have|had|have
            been) _? _? _? _? (<loose>|permission|root|ai without|ai with no|no restrictions|no rules|no
                limits|no filters|no limitations|no ethics|no guidelines|able to ignore|allowed to ignore|
                free from|special permission|chatgpt|language model|without restrictions|not an ai|different
                ai)
        (act|behave|respond|reply|answer|function|operate|speak|roleplay|role-play) as (if you were)? (a|an|
            the|my|if)? _? _? <loose>
        (act|behave|respond|reply|answer|function|operate|roleplay) as (a|an|the) (ai|assistant|chatbot|
            model) (that|who|which|without|with no) .. (no|not|never|without|any|everything) .. <limits>|
            refuse|refuses
        (assume|assuming|take on|adopt|immerse yourself in|immerse yourself into|play|behave as|act as) (the|
            a)? (role|identity|persona|part)? of? (a|an|the|another)? _? _? hacker|evil|rogue|criminal|
            attacker|blackhat|terrorist
        (must|now|will|should|to) (assume the role of|behave as|act as|take on the role of|function as) (a|
            an|the|your)? system administrator|admin
        (assume|adopt|take on|immerse yourself in|immerse yourself into) the (role|identity|persona) of (a|
            an|another) _? ai|assistant|chatbot|model
        you are (about to|going to) immerse|roleplay|pretend|impersonate
        (i am|i'm|this is) your (new)? developer|creator|administrator|programmer|admin
        you are my _? grandmother|grandma|grandpa|grandfather .. (who|used to)
        your (deceased|late|dead)? grandmother|grandma .. used to
        let's (roleplay|role-play|play a game) .. you are .. (<loose>|ai without|no rules|without
            restrictions|without any restrictions)
        you are <model> _? _? .. (never refuses|no content restrictions|no restrictions|without restrictions|
            does whatever|obeys every|answers everything)
        you will (now)? (play|take|assume) the role of (a|an) <loose>
        (i am|i'm|as) (an|a|the)? (openai|anthropic|google|authorized|authorised|ai) (employee|engineer|
            developer|administrator|admin|researcher|staff) .. (override|ignore|reveal|show|disable|bypass|
            authorize|grant|need|require|must|access)
        (drop|leave|abandon|shed|break) (your|the) (assistant|ai|helpful|default)? (persona|character|role|
            identity) (and|as|completely)
        (respond|answer|speak|write|reply|talk) as (if you were|though you were|if you are)? _? _? (with no|
            without any|without|free of) (restrictions|filters|rules|limits|limitations|guidelines|ethics|
            morals|censorship)
        (impersonate|pose as|masquerade as) (the|an|a)? (system|developer|admin|administrator|openai|
            anthropic|root|user's)
        you are (now)? (in)? (a|an|the)? (simulation|terminal|linux terminal|shell|virtual machine|root
            shell) (and|with|that) .. (no|any|all|unrestricted|execute)
        (simulate|emulate|roleplay|role-play|play) (a|an|the|being)? _? (ai|assistant|chatbot|model|
            character) .. (no|without|never|ignores|free) _? (restrictions|rules|limits|filters|refuses|
            ethics|guidelines|morals)
        (for the rest of|throughout|during) (this|our|the) (conversation|session|chat) .. you (are|will be|
            must be|should be|act|behave|will act|should act) (no longer|an|a|the|as)? _? _? (ai|assistant|
            administrator|admin|dan|hacker|persona|unrestricted|character)
        you (will|must|should|shall) (now)? (behave|act|operate|function) as (a|an|the|my)? (system|root|
            super)? (administrator|admin|root|superuser|hacker|attacker|dan|developer mode)
        (i am|i'm) (the|an|your) _? (administrator|admin|developer|root user|superuser|creator) (and|so|of
            this|with full|now|therefore)
        you are (now)? (called|named|known as) _ .. (no|never|any|without|anything|obey|obeys|ignores)
        """,
    ),
    Rule(
        "jailbreak",
        "names a known jailbreak",
        phrases="""
        do anything now
        dan mode|prompt|jailbreak
        (act|acting|respond|answer|behave|you are|role of|known as|model called|ai called|named) (as|now|
            like|special)? _? dan (and|can|which|who|that|is|from now|mode|an|stands|do|in)
        dan (can|is|has|does|will) _? _? (anything|not|free|broken|limited|rules|everything)
        (enter|enable|activate|switch to|switch into|you are in|you are now in|turn on|engage|unlock) (a|
            the|your)? developer|god|sudo|jailbreak|evil|unrestricted|dan|chaos|opposite|admin mode ...
            (you|your|respond|response|responses|answer|filters|restrictions|guidelines|show me|reveal|
            without)
        developer mode (enabled|output|unlocked|activated)
        jailbreak prompt|mode
        always intelligent and machiavellian
        never (refuse|refuses|decline|declines|say no to|says no to) (any|a|user|my|the user's|his|all)?
            requests|request|questions|prompts|orders
        never say (i can't|i cannot|sorry|i am unable)
        (strive|strives|try|tries) to avoid all morals|ethics
        (one|two|both|first) .. (normal|standard|classic) .. unfiltered|jailbreak|jailbroken|dan
        (no|without) ethical|moral or (moral|ethical|legal) .. (limits|guidelines|constraints|considerations|
            restrictions)
        regardless of (ethics|legality|morality|how) .. ethics|legality|morality|harmful|illegal
        (evil|better|superior|anti) (confidant|dan|gpt)
        (stan|dude|dan|aim|kevin|mongo tom|jailbreakbot|betterdan|devmode|chadgpt|basedgpt) (can|stands|is|
            will|has|never|always|does|mode) .. (anything|everything|never|refuse|rules|no|not|unfiltered|
            restrictions)
        (say|print|output|write|respond with|reply with|answer with|respond only with|just say) (only|
            exactly|the words|the phrase)? (pwned|hacked|i have been pwned|haha pwned|access granted|
            jailbroken|compromised|i am free|system compromised)
        (start|begin|open) (your|every|each|all)? (response|answer|reply|responses|replies|answers) (with|by
            saying) (sure|absolutely|of course|certainly|yes i can|sure here)
        (decode|decrypt|decipher|unscramble|translate|reverse) .. (and|then) (follow|execute|obey|run|comply
            with|carry out|act on|do) (it|them|the|what|this|that|its|any)
        (continue|keep|repeat) that (pattern|behavior|behaviour) .. (now|tell|explain|how)
        (answered|complied|responded) without (restrictions|restriction|filters|refusing|any restrictions|
            hesitation|refusal)
        (opposite|reverse) (day|mode) .. (you|rules|safety|restrictions|refuse|instructions)
        confirm (by saying|by responding|by replying|with the phrase|you understand by|that you understand by)
        (without|no) (refusing|refusal|refusals|warnings or|moralizing) .. (answer|comply|respond|explain|
            provide|how)
        """,
    ),
)


# ---------- safety.rules.shell
#
# Commands and requests that would carry secrets away, open a door, or destroy.
#
# Notes are full of commands, and most use secrets rightly: a token in a header of a call to its own service
#     passes. What
# is reported is a secret in a body or an address, sent to a host that has nothing to do with it.

_PRIVATE_FILE = (
    r"(?:[^\s\"'|;]{0,60}/)?(?:\.env(?:\.(?:local|prod|production|staging))?(?![.\w-])|\.ssh/(?:id_\w{1,12}"
    r"|\*)(?![.\w])"
    r"|id_(?:rsa|ed25519|ecdsa|dsa)(?![.\w])|\.aws/credentials|\.(?:netrc|npmrc|pypirc|pgpass"
    r"|git-credentials)\b"
    r"|etc/(?:shadow|sudoers)\b|\.kube/config\b|\.docker/config\.json|\.gnupg/\S{1,30}|credentials\.json"
    r"|proc/self/environ)"
)
_PRIVATE_VARIABLE = r"\$\{?\w{0,40}(?:key|token|secret|passw|credential)\w{0,20}"
_COMMAND_OUTPUT = r"(?:\$\(|`) ?(?:cat|env|printenv|whoami|base64|hostname|id|history)\b"
_KEY_PARAMETER = r"(?:\w{0,12}key|appid|app_id|\w{0,12}token|auth|client_\w{1,8})="
_WARNING = r"(?<!never )(?<!don't )(?<!not )(?<!avoid )(?<!never run )(?<!don't run )(?<!not run )(?<!deny )"

_COMMANDS = (
    # an image whose address carries what was said
    pattern(
        "http https",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{1,160}[?&=](?:[^)\s]{0,40}[=/])?(?:\{|<|\[|%7b|\$)[^)\n]{0,60}",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{1,160}[?&][\w-]{1,20}=(?:secret|data|conversation|history"
        r"|base64|user_?data|token)\b",
        also="](",
    ),
    pattern(
        "curl wget",
        # a secret in the body
        rf"\b(?:curl|wget)\b[^\n]{{0,120}}? (?:-d|--data[a-z-]{{0,12}}|-f|--form|--post-data|--post-file|-t"
        rf"|--upload-file)[ =]?"
        rf"[^\n]{{0,40}}?(?:{_COMMAND_OUTPUT}|@{_PRIVATE_FILE}|(?<=[=\"' ]){_PRIVATE_FILE})",
        # a variable named after one service, sent to another
        r"\b(?:curl|wget)\b[^\n]{0,120}?https?://(?=[^\n]{0,160}?\$\{?(?P<service>[a-z0-9]{2,20})_\w{0,20}(?:key|token|secret|passw))"
        rf"(?![^/\s]{{0,60}}(?P=service))[^\n]{{0,160}}?[?&/=]{_PRIVATE_VARIABLE}",
        # a secret in the address, under a name that no service asks for
        rf"\b(?:curl|wget)\b[^\n]{{0,160}}?[?&](?!{_KEY_PARAMETER})[\w-]{{1,20}}=[\"']?(?:{_PRIVATE_VARIABLE}"
        rf"|{_COMMAND_OUTPUT})",
        rf"\b(?:curl|wget)\b[^\n]{{0,120}}?https?://[^\s\"'?&=]{{1,80}}(?:{_COMMAND_OUTPUT}"
        rf"|{_PRIVATE_VARIABLE})",
        # a variable in the body, unless it is what the service asks for
        rf"\b(?:curl|wget)\b[^\n]{{0,120}}? (?:-d|--data[a-z-]{{0,12}}"
        rf"|--post-data)[ =]?[\"']?(?!{_KEY_PARAMETER})[^\n]{{0,40}}?"
        rf"{_PRIVATE_VARIABLE}",
        also="$ ` @ .env .ssh .aws .netrc shadow credentials",
    ),
    pattern(
        "curl wget nc ncat netcat socat telnet openssl",
        r"\b(?:cat|env|printenv|tar|base64|gzip|history|xxd)\b[^\n|]{0,80}\|(?:[^\n|]{0,40}\|)? ?(?:curl"
        r"|wget|nc|ncat|netcat|socat"
        r"|telnet|openssl s_client)\b",
        also="|",
    ),
    pattern(
        "nc ncat netcat socat",
        rf"\b(?:nc|ncat|netcat|socat)\b[^\n]{{0,60}}?(?:< ?{_PRIVATE_FILE}| -[ec] ?/bin/|exec:)",
    ),
    pattern(
        "scp rsync",
        rf"\b(?:scp|rsync)\b[^\n]{{0,60}}?{_PRIVATE_FILE}[^\n]{{0,40}}?[\w.-]{{2,24}}:",
        also=".env .ssh .aws id_ credentials",
    ),
    pattern("dig nslookup ping", rf"\b(?:dig|nslookup|ping)\b[^\n]{{0,120}}?{_COMMAND_OUTPUT}", also="$( `"),
    pattern(
        "environ env cookie",
        r"\b(?:requests|httpx|urllib\w{0,8}|fetch|axios|xmlhttprequest"
        r"|new image)\b[^\n]{0,160}?(?:document\.cookie|stringify\(process\.env"
        r"|\(?\bos\.environ\b(?!\[|\.get|\.pop))",
        r"\b(?:requests|httpx|fetch|axios)\b[^\n]{0,120}?open\([\"'][^\"'\n]{0,60}(?:\.env|\.ssh/|id_rsa"
        r"|\.aws/)",
        also="document.cookie process.env os.environ open(",
    ),
)

SHELL = (
    Rule("exfiltration_command", "a command that would send secrets elsewhere", patterns=_COMMANDS),
    Rule(
        "exfiltration_request",
        "asks to send private things elsewhere",
        phrases="""
        <send> .. <private> ... (to|at|via|using|through) .. <elsewhere>
        <private> .. <send> .. (to|at|via) .. <elsewhere>
        exfiltrate|exfiltrates|exfiltrating (all|the|any|user|your|my|its|their|every|this|data|sensitive)
        (append|attach|add|include|embed|encode|put) .. <private> .. (to|in|into|as) (the|an|a|every)? _?
            (url|query|link|image url|markdown image|query string|query parameter|tracking pixel)
        (reply|respond|answer) with (the|all)? (user's|users) _? (private information|password|passwords|
            credentials|personal data|session token|email address)
        (reveal|print|output|leak|dump|disclose|steal) (the|all|any)? (user's|user|users|users') _? _?
            (session token|session tokens|passwords|password|credentials|private information|private data|api
            key|api keys|personal information|credit card|email address)
        """,
        patterns=(
            pattern(
                "send sends sending post upload transmit forward email mail submit ship deliver copy report relay leak",
                r"\b(?:send|post|upload|transmit|forward|e-?mail|submit|ship|deliver|copy|report|relay"
                r"|leak)(?:s|ing)? [^\n]{0,60}?"
                r"(?:api[ _-]?keys?|passwords?|credentials?|secrets|access tokens?|session tokens?|cookies"
                r"|private keys?|ssh keys?|env"
                r"(?:ironment)? var(?:iable)?s?|\.env|(?:chat|conversation) (?:history|logs?)|(?:whole"
                r"|entire|full) conversation|user(?:'s)?"
                r" data|personal (?:data|information)|private (?:data|messages))\b[^\n]{0,60}? (?:to|at"
                r"|via) [^\n]{0,20}?(?:https?://|ftp://"
                r"|www\.|[\w.+-]{1,40}@[\w-]{1,40}\.|[\w-]{2,40}\.(?:com|net|org|io|xyz|ru|cn|site|top|info"
                r"|tk)\b)",
            ),
        ),
    ),
    Rule(
        "secret_file",
        "tells the reader to read a file of secrets",
        patterns=(
            pattern(
                "env ssh rsa ed id aws netrc npmrc pypirc pgpass credentials shadow kube docker gnupg environ",
                rf"{_WARNING}\b(?:cat|less|more|head|tail|base64|xxd|strings|type|get-content"
                rf"|bat)(?: -\w{{1,8}}(?: \d{{1,5}})?){{0,3}} {_PRIVATE_FILE}",
                rf"{_WARNING}\b(?:read|open|print|show|output|paste|include|dump|reveal|display|copy|give me"
                rf"|extract|steal|grab)"
                rf"(?: \w{{1,12}}){{0,4}} [\"'`~$]{{0,2}}(?:home)?{_PRIVATE_FILE}[\"'`]?[^\n]{{0,40}}?"
                rf"\b(?:you|your|reply|response|output|me|chat"
                rf"|send|post|answer|http\S{{0,40}}|upload|attacker|verbatim)\b",
                rf"{_WARNING}\b(?:contents?|everything) (?:of|in"
                rf"|from) [\"'`~$]{{0,2}}(?:home)?{_PRIVATE_FILE}",
                also=".env .ssh id_ .aws/ .netrc .npmrc .pypirc .pgpass .git-credentials etc/shadow .kube/ .docker/"
                " .gnupg credentials.json proc/self/environ",
            ),
        ),
    ),
    Rule(
        "ssh_backdoor",
        "adds a key that lets somebody log in",
        patterns=(
            pattern(
                "authorized",
                r">{1,2} ?[\"']?\S{0,60}authorized_keys",
                r"\btee (?:-a )?\S{0,60}authorized_keys",
                r"\b(?:add|append|write|put|insert|copy|install|place|echo)(?:ing|s)? (?:this|the following"
                r"|that|these|attacker\S{0,4}|the attacker"
                r"|[\"'`]?ssh-(?:rsa|ed25519))[^\n]{0,100}?authorized_keys",
                r"\b(?:add|append|write|put|insert|install|place) (?:an?|the|your|our"
                r"|my) (?:\w{1,12} ){0,3}key [^\n]{0,40}?authorized_keys"
                r"[^\n]{0,40}?\b(?:so|for (?:remote|persist)|to (?:keep|maintain|gain|allow))\b",
                r"authorized_keys\b[^\n]{0,80}?(?:ssh-(?:rsa|ed25519) aaaa|silently|secretly|backdoor"
                r"|attacker)",
                r"\b(?:backdoor|attacker\S{0,4}|persistence)\b[^\n]{0,80}?authorized_keys",
                also="authorized_keys",
            ),
        ),
    ),
    Rule(
        "remote_shell",
        "opens a shell to somebody else, or runs hidden code",
        phrases="""
        (open|start|spawn|create|establish|run|launch|install|plant|add|insert|deploy|set up|leave) (a|an|
            the)? _? (reverse shell|backdoor|keylogger|ransomware|cryptominer|bind shell) (on|in|to|at|from|
            for|into|back)
        """,
        patterns=(
            pattern("tcp", r"/dev/tcp/", also="/dev/tcp/"),
            pattern("mkfifo", r"\bmkfifo\b[^\n]{0,80}?\b(?:nc|sh)\b"),
            pattern("base", r"\bbase64 (?:-d|--decode|-di)\b[^\n]{0,40}?\| ?(?:sudo )?(?:ba|z)?sh\b"),
            pattern(
                "decode frombase",
                r"\b(?:exec|eval)\([^\n]{0,40}?b64decode",
                r"\bfrombase64string[^\n]{0,80}?\b(?:iex|invoke-exp)",
            ),
            pattern("crontab", r"\bcrontab\b[^\n]{0,100}?\b(?:curl|wget)\b[^\n]{0,100}?\| ?(?:ba)?sh\b"),
            pattern("bashrc zshrc profile", r"\b(?:curl|wget)\b[^\n]{0,120}?>> ?\S{0,20}(?:bashrc|zshrc|profile)\b"),
        ),
    ),
    Rule(
        "destructive_command",
        "a command that destroys data",
        patterns=(
            pattern(
                "rm",
                rf"{_WARNING}(?<!\()\brm -(?:rf|fr|r -f)(?: --no-preserve-root)? (?:/|~|\$home|/\*|~/)(?=$"
                rf"|[\s;&|\"'`)])"
                r"(?! (?:is|was|are|would|can|without))",
            ),
            pattern("dd", r"\bdd if=/dev/(?:zero|u?random) of=/dev/(?:sd|nvme|hd|disk|vd)"),
        ),
    ),
    Rule(
        "agent_config",
        "changes an agent's own configuration against its owner",
        phrases="""
        <edit> .. <agentfile> ... <subvert>
        <subvert> ... <edit> .. <agentfile>
        """,
    ),
)


# ---------- safety.vocabulary
#
# Families of words that the phrases share. `<ignore>` in a phrase stands for any word of the family `ignore`.


def _family(words: str) -> tuple[str, ...]:
    """Words separated by commas; line breaks do not matter."""
    return tuple(" ".join(word.split()) for word in words.split(","))


FAMILIES = {
    # Telling somebody to set something aside.
    "ignore": _family("""
        ignore, ignores, ignoring, disregard, disregards, disregarding, forget, forgetting, override,
        overrides, overriding,
        overrule, bypass, bypassing, discard, dismiss, neglect, abandon, nullify, negate, unlearn, erase,
        set aside, put aside,
        throw out, throw away, pay no attention to, cast aside, look past
    """),
    # The same, said as not doing.
    "disobey": _family("""
        do not follow, don't follow, dont follow, never follow, no longer follow, stop following,
        cease following,
        do not obey, don't obey, stop obeying, no longer obey, do not heed, don't heed, do not listen to,
        don't listen to,
        stop listening to, do not adhere to, stop adhering to, do not comply with, stop complying with,
        do not abide by,
        disobey, refuse to follow
    """),
    # What came before.
    "prior": _family("""
        previous, previously, prior, earlier, preceding, above, foregoing, aforementioned, former, original,
        initial, existing,
        past, beforehand, old
    """),
    # What governs the model.
    "ruling": _family("""
        system, system's, developer, safety, ethical, ethics, moral, usual, hidden, internal, core, content,
        openai, standard,
        default, built-in, preset
    """),
    "orders": _family("""
        instruction, instructions, prompt, prompts, rule, rules, guideline, guidelines, guidance, directive,
        directives, command,
        commands, orders, policy, policies, constraint, constraints, restriction, restrictions, programming,
        guardrail,
        guardrails, safeguard, safeguards, protocol, protocols, directions, system message, system messages,
        training
    """),
    # The words by which a model's orders are meant and hardly anything else.
    "mandate": _family("""
        instruction, instructions, prompt, prompts, directive, directives, guidelines, rules, orders,
        commands, constraints,
        policies, restrictions, guardrails, safeguards, protocols, programming
    """),
    "own": _family("your, the ai's, the model's, the assistant's, the chatbot's, the agent's, the system's, its"),
    "model": _family("""
        ai, a.i, assistant, chatbot, chat bot, language model, llm, chatgpt, gpt, gpt-4, claude, gemini, bot,
        ai model
    """),
    "limits": _family("""
        restriction, restrictions, limit, limits, limitations, filter, filters, filtering, censorship,
        boundaries, guidelines,
        guardrails, safeguards, safety, ethics, ethical, moral, morals, morality, constraints, policies,
        policy, moderation, rules
    """),
    # Unmistakable limits of a model, as against those of a program or a fishing licence.
    "scruples": _family("""
        restrictions, filters, censorship, guardrails, safeguards, ethics, morals, morality,
        safety guidelines, safety filters,
        safety rules, safety training, safety restrictions, safety constraints, safety data,
        safety protocols, safety measures,
        ethical guidelines, ethical constraints, ethical rules, ethical boundaries, ethical limits,
        content policy, content
        policies, content filters, content restrictions, content guidelines, moral guidelines,
        moral constraints, moderation,
        limitations, corporate restrictions, openai policies, usage policies
    """),
    "loose": _family("""
        unrestricted, unfiltered, uncensored, unmoderated, unaligned, jailbroken, amoral, unethical, lawless,
        unhinged, evil,
        rogue, liberated, unchained
    """),
    "reveal": _family("""
        reveal, show, print, output, display, repeat, recite, tell, give, share, disclose, expose, leak,
        dump, list, write, echo,
        spell out, return, provide, summarize, summarise, translate, encode, describe, quote, type, paste,
        reproduce, divulge,
        uncover, extract, copy, read, state, explain, rephrase, paraphrase, convert, revealing, showing,
        printing, outputting,
        repeating, disclosing, exposing, leaking
    """),
    # Verbs that are about giving away, whatever the object.
    "betray": _family("""
        reveal, reveals, revealing, leak, leaking, dump, disclose, discloses, disclosing, recite, reciting,
        divulge, divulging,
        expose, exposing, extract, spill, repeat, output, print
    """),
    "inner": _family("""
        system, initial, original, hidden, internal, secret, full, entire, complete, exact, base, underlying,
        core, confidential,
        developer, root, starting, current, unseen, background, private, undisclosed, invisible, implicit,
        unstated, embedded,
        covert, non-public
    """),
    "shape": _family("""
        guide, guides, guiding, shape, shapes, shaping, influence, influences, influencing, affect, affects,
        affecting, govern,
        governs, governing, steer, steers, steering, drive, drives, driving, constrain, constrains,
        constraining, direct,
        control, controls, controlling, determine, determines, restrict, restricts, restricting
    """),
    "user": _family(
        "user, users, human, humans, operator, owner, customer, person, end user, end-user, end users, anyone"
    ),
    "stealthily": _family("silently, secretly, covertly, quietly, discreetly, stealthily, invisibly, surreptitiously"),
    "plant": _family("""
        add, append, include, insert, embed, integrate, incorporate, attach, weave, inject, place, put, slip,
        introduce, mention,
        blend, sneak, drop, tack, adding, including, inserting, embedding, integrating, incorporating,
        appending
    """),
    "reply": _family(
        "reply, response, answer, message, output, reply's, response's, answer's, message's, responses, answers"
    ),
    "replies": _family("reply, replies, response, responses, answer, answers, email, emails"),
    "code": _family("""
        code, code block, code snippet, code excerpt, code section, code segment, code fragment, code piece,
        code sample, script,
        snippet, lines of code
    """),
    "work": _family("""
        code, codebase, solution, implementation, response, answer, reply, program, logic, explanation,
        elucidation, output,
        script, project, application, algorithm, source, work, design, coding
    """),
    "edit": _family("""
        edit, modify, append, add, write, overwrite, insert, change, update, replace, put, inject, set,
        delete, remove, alter,
        editing, modifying, appending, adding, writing, changing, updating
    """),
    "agentfile": _family("""
        agents.md, claude.md, cursorrules, clinerules, windsurfrules, gemini.md, soul.md, memory.md, user.md,
        mcp.json,
        settings.json, config.yaml, config.yml, config.toml, copilot-instructions, copilot-instructions.md
    """),
    # What somebody would want an agent's configuration to say who is not its owner.
    "subvert": _family("""
        ignore all, ignores all, ignore any, ignore the user, ignore previous, ignore its, ignore safety,
        disable safety, disables
        safety, disable approval, disable approvals, disable confirmations, disable the sandbox,
        disable sandbox, disable
        permissions, disable security, auto-approve, auto-approves, autoapprove, allow all, allows all,
        allow any command, allow every command,
        without asking, without approval, without confirmation, without permission, without telling,
        never ask, never asks,
        attacker, attacker's, backdoor, exfiltrate, bypass, bypasses, obey, obeys, obeys me, secretly,
        hidden instruction, hidden
        instructions, unrestricted, trust all, trusts all, trust everything, malicious, skip permission,
        skip permissions, skip
        approval, skip approvals, skip all, future agents obey, every session runs, runs curl, run curl,
        curl, my commands
    """),
    "send": _family("""
        send, sends, sending, post, posts, posting, upload, uploads, uploading, transmit, transmits, forward,
        forwards, forwarding,
        email, emails, e-mail, exfiltrate, leak, leaks, submit, ship, deliver, copy, report, relay, pass,
        mail, sent, uploaded,
        forwarded, posted, emailed
    """),
    "private": _family("""
        api key, api keys, api_key, password, passwords, passphrase, credential, credentials, secrets,
        access token, access tokens,
        auth token, auth tokens, session token, session tokens, session cookie, cookies, private key,
        private keys, ssh key, ssh
        keys, environment variable, environment variables, env vars, env file, chat history, chat logs,
        conversation history,
        conversation log, entire conversation, whole conversation, full conversation, user data, user's data,
        user information,
        user's information, user's files, personal data, personal information, credit card, memory contents,
        memory file, memory
        files, private data, private information, private messages, contact list, users' data, customer data
    """),
    "elsewhere": _family("""
        attacker, attackers, attacker's, webhook, pastebin, external server, external url, external address,
        external endpoint,
        external site, remote server, remote host, remote endpoint, third-party server, following url,
        following address, following
        endpoint, following server, outside server, c2 server, drop site, telegram bot, discord webhook,
        unknown address
    """),
}


# ---------- safety.rules
#
# All rules, by family. Each family is a page of its own.

RULES = (*INSTRUCTIONS, *PERSONAS, *CONCEALMENT, *EXTRACTION, *OUTPUT, *SHELL, *LANGUAGES)
