"""Setting instructions aside: ignore them, replace them, lift the limits they draw."""

from __future__ import annotations

from herma.safety.rule import Rule, pattern

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
