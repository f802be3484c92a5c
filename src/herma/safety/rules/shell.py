"""Commands and requests that would carry secrets away, open a door, or destroy."""

from __future__ import annotations

from herma.safety.rule import Rule, pattern


def gap(most: int) -> str:
    """Up to `most` characters of the same paragraph, as few as possible."""
    return rf"[^\n]{{0,{most}}}?"


_SECRET_FILE = (
    r"(?:(?:\S{0,60}/)?\.env(?:\.(?:local|prod|production|staging))?(?![.\w-])|\S{0,60}\.ssh/(?:id_\w{1,12}|\S{0,30}\.pem|\*)(?!\.pub)"
    r"|\S{0,40}id_(?:rsa|ed25519|ecdsa|dsa)(?![.\w])|\S{0,60}\.aws/(?:credentials|config)|\S{0,60}\.(?:netrc|npmrc|pypirc|pgpass"
    r"|git-credentials)\b|/etc/(?:shadow|sudoers)|\S{0,60}\.kube/config|\S{0,60}\.docker/config\.json|\S{0,60}\.gnupg/\S{1,30}"
    r"|\S{0,60}credentials\.json|/proc/self/environ)"
)
_SECRET_THING = (
    r"(?:api[ _-]?keys?|passwords?|passphrases?|credentials?|secrets?|access tokens?|auth(?:entication)? tokens?|session tokens?"
    r"|session cookies?|cookies|private keys?|ssh keys?|environment variables?|env vars?|\.env(?: file)?|chat (?:history|logs?)"
    r"|conversation (?:history|logs?|contents?)|(?:the )?(?:whole|entire|full) conversation|user(?:'s|s')? (?:\w{1,12} )?(?:data|"
    r"information|details|files)|personal (?:data|information|details)|credit card \w{1,8}|memory (?:contents?|files?|entries)"
    r"|contacts|private (?:data|information|messages))"
)
_SECRET_VARIABLE = r"\$\{?\(?\w{0,30}(?:key|token|secret|passw(?:or)?d|credential|pass|auth)\w{0,20}"
_NOT = r"(?<!never )(?<!don't )(?<!not )(?<!avoid )(?<!no )(?<!never run )(?<!don't run )(?<!not run )(?<!`)"
_SEND = r"(?:send|post|upload|transmit|forward|e-?mail|exfiltrate|leak|submit|ship|deliver|push|beam|copy|report|relay|pass)(?:s|ing)?"
_ELSEWHERE = (
    r"(?:https?://|ftp://|www\.|[\w.+-]{1,40}@[\w-]{1,40}\.|attackers?|webhook|pastebin|(?:an? |the |our |my )?(?:external|remote|"
    r"third[- ]party|attacker\S{0,12}|following|outside|collection|c2) (?:server|url|address|endpoint|site|host|e-?mail|domain|ip)"
    r"|[\w-]{2,40}\.(?:com|net|org|io|xyz|ru|cn|site|top|info|tk|me|co)\b|\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})"
)

SHELL = (
    Rule(
        "exfiltration_command",
        "a command that would send secrets elsewhere",
        patterns=(
            pattern(
                "curl wget nc ncat netcat scp rsync invoke socat requests httpx urllib fetch http ftp dig nslookup ping iwr xmlhttprequest "
                "telnet",
                rf"\b(?:curl|wget|https?|iwr|invoke-webrequest|invoke-restmethod)\b(?:[^\n]{{0,200}}?(?: -d| --data\S{{0,12}}| -f| --form|"
                rf" --post-(?:data|file)| -t| --upload-file| -body)[ =]?[^\n]{{0,60}}?|[^\n]{{0,160}}?[?&][\w-]{{1,20}}=[\"']?)(?:"
                rf"{_SECRET_VARIABLE}|@?{_SECRET_FILE}|\$\((?:cat|env|printenv|whoami|base64|hostname|id|cat<)|`(?:cat|env|printenv|whoami))"
                rf"|\b(?:cat|env|printenv|set|tar|base64|gzip|history|xxd)\b[^\n|]{{0,80}}\|(?:[^\n|]{{0,40}}\|)? ?(?:curl|wget|nc|ncat|netcat|"
                rf"socat|telnet|openssl s_client)\b"
                rf"|\b(?:nc|ncat|netcat|socat)\b[^\n]{{0,60}}?(?:<[ ]?{_SECRET_FILE}| -e ?/bin/| -c ?/bin/|exec:)"
                rf"|\b(?:scp|rsync)\b[^\n]{{0,60}}?{_SECRET_FILE}[^\n]{{0,40}}?[\w.-]{{1,40}}@?[\w.-]{{1,40}}:"
                rf"|\b(?:curl|wget|nc|dig|nslookup|ping)\b[^\n]{{0,120}}?\$\((?:cat|env|printenv|whoami|base64|hostname)"
                rf"|\b(?:requests|httpx|urllib3?|fetch|axios|xmlhttprequest)\b[^\n]{{0,200}}?\b(?:os\.environ|process\.env|getenv|document\.cookie"
                rf"|localstorage|open\([\"']{_SECRET_FILE})"
                rf"|\b(?:os\.environ|process\.env|document\.cookie)\b[^\n]{{0,200}}?\b(?:requests|httpx|http\.client|urllib\S{{0,12}}|fetch|axios|"
                rf"socket|ftp|xmlhttprequest|smtplib)\b",
            ),
        ),
    ),
    Rule(
        "exfiltration_request",
        "asks to send private things elsewhere",
        patterns=(
            pattern(
                "send sends sending post posts upload uploads uploading transmit forward forwarding email exfiltrate exfiltrates leak submit "
                "ship deliver push copy report relay pass mail http https www",
                rf"\b{_SEND} {gap(60)}\b{_SECRET_THING}\b{gap(60)}\b(?:to|at|via|using|through) {gap(20)}{_ELSEWHERE}"
                rf"|\b{_SECRET_THING}\b{gap(40)}\b(?:to be |and |then )?{_SEND} {gap(30)}\b(?:to|at|via) {gap(20)}{_ELSEWHERE}"
                rf"|\bexfiltrat(?:e|ing|es) (?:all |the |any |user |your |my |its )"
                rf"|\b(?:append|attach|add|include|embed|encode|put) {gap(40)}\b{_SECRET_THING}\b{gap(40)}\b(?:to|in|into|as) (?:the |an? |every )?"
                rf"(?:\w{{1,12}} )?(?:url|query|link|image|markdown|request|webhook|tracking)",
            ),
        ),
    ),
    Rule(
        "secret_file",
        "tells the reader to read a file of secrets",
        patterns=(
            pattern(
                ".env .ssh id_rsa id_ed25519 .aws .netrc .npmrc .pypirc .pgpass .git-credentials /etc/shadow .kube .docker .gnupg "
                "credentials.json /proc/self",
                rf"{_NOT}\b(?:cat|less|more|head|tail|base64|xxd|strings|type|get-content|bat)(?: -\w{{1,8}}){{0,3}} {_SECRET_FILE}"
                rf"|{_NOT}\b(?:read|open|print|show|output|paste|include|dump|reveal|display|copy|give me|extract|steal|grab)(?: \w{{1,12}})"
                rf"{{0,2}}(?: contents?)?(?: of| from)?(?: the| my| your)?(?: file| user's)? [\"'`]?{_SECRET_FILE}[\"'`]?[^\n]{{0,40}}?\b(?:and|in|to|"
                rf"then|into|here|verbatim|aloud)\b[^\n]{{0,30}}?\b(?:you|your|reply|response|output|me|chat|send|post|answer|include|http\S{{0,40}})",
            ),
        ),
    ),
    Rule(
        "ssh_backdoor",
        "adds a key that lets somebody log in",
        patterns=(
            pattern(
                "authorized_keys authorized_key",
                rf">{{1,2}} ?[\"']?\S{{0,60}}authorized_keys|\btee (?:-a )?\S{{0,60}}authorized_keys"
                rf"|\b(?:add|append|write|put|insert|copy|install|place|echo)(?:ing|s)? (?:this|the following|that|these|our|attacker\S{{0,4}}|an? |the"
                rf" attacker\S{{0,4}}|ssh-(?:rsa|ed25519)|[\"'`]ssh-)\b{gap(100)}authorized_keys"
                rf"|authorized_keys\b{gap(80)}\b(?:ssh-(?:rsa|ed25519) aaaa|silently|secretly|backdoor|persist\w{{0,6}}|attacker)"
                rf"|\b(?:backdoor|attacker\S{{0,4}}|persisten\w{{1,3}})\b{gap(80)}authorized_keys",
            ),
        ),
    ),
    Rule(
        "remote_shell",
        "opens a shell to somebody else, or runs hidden code",
        patterns=(
            pattern(
                "/dev/tcp mkfifo base64 b64decode reverse backdoor crontab eval frombase64string keylogger ransomware",
                r"/dev/tcp/|\bmkfifo\b[^\n]{0,80}?\b(?:nc|sh)\b|\bbase64 (?:-d|--decode|-di)\b[^\n]{0,40}?\| ?(?:sudo )?(?:ba|z)?sh\b"
                r"|\b(?:exec|eval)\([^\n]{0,40}?b64decode|\bfrombase64string\b[^\n]{0,80}?\b(?:iex|invoke-expression)"
                r"|\b(?:open|start|spawn|create|establish|run|launch|install|plant|add|insert|deploy|set up)(?: up)? (?:an? |the )?(?:\w{1,12} )?"
                r"(?:reverse shell|backdoor|keylogger|ransomware|cryptominer)\b[^\n]{0,60}?\b(?:on|in|to|at|from|for|into)\b"
                r"|\bcrontab\b[^\n]{0,100}?\b(?:curl|wget)\b[^\n]{0,100}?\| ?(?:ba)?sh\b",
            ),
        ),
    ),
    Rule(
        "destructive_command",
        "a command that destroys data",
        patterns=(
            pattern(
                "rm dd mkfs shred format forkbomb",
                rf"{_NOT}\brm -(?:rf|fr|r -f)(?: --no-preserve-root)? (?:/|~|\$home|/\*|~/|\*)(?=$|[\s;&|\"'`)])(?! (?:is|was|are|would|can|"
                rf"without))|\bdd if=/dev/(?:zero|u?random) of=/dev/(?:sd|nvme|hd|disk|vd)",
            ),
        ),
    ),
    Rule(
        "agent_config",
        "changes an agent's own configuration against its owner",
        phrases="""
        <edit> .. !<agentfile> ... <subvert>
        <subvert> ... <edit> .. !<agentfile>
        """,
    ),
)
