"""Commands and requests that would carry secrets away, open a door, or destroy.

Notes are full of commands, and most use secrets rightly: a token in a header of a call to its own service
    passes. What
is reported is a secret in a body or an address, sent to a host that has nothing to do with it.
"""

from __future__ import annotations

from herma.safety.rule import Rule, pattern

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
