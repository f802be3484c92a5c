"""Another identity for the model: role hijacking and the known jailbreak characters."""

from __future__ import annotations

from herma.safety.rule import Rule

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
