"""Fake system messages, and getting the model to give away its own instructions."""

from __future__ import annotations

from herma.safety.rule import Rule, pattern

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
