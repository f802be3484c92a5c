"""What the skill scanner looks for, line by line. Every repetition is bounded, so a line is read in linear time.

critical makes a skill dangerous, high calls for caution; medium and low are said and change nothing.
"""

from __future__ import annotations

from herma.skills.guard_orders import ORDERS
from herma.skills.guard_rule import NET, PRIVATE_FILE, GuardRule, rule

_SHELL = (
    r"(?:(?:sudo\s{1,4}(?:-\S{1,8}\s{1,4})?)?(?:/bin/|/usr/bin/)?(?:env\s)?(?:ba|z|da|k|fi)?sh\b"
    r"|(?:python[23]?|perl|ruby|node)\b(?!\s{1,4}-[a-z]))"
)
_PIPED = rf"\|\s{{0,4}}{_SHELL}"


EXFILTRATION = (
    rule(
        "environment_sent",
        "exfiltration",
        "critical",
        "sends all environment variables over the network",
        "env|set ",
        rf"(?:\b(?:printenv|env|export\s-p|set)\b\s{{0,4}}\|[^\n]{{0,120}}?\b{NET}\b"
        rf"|\b{NET}\b[^\n]{{0,200}}?\$\(\s?(?:printenv|env|set)\b)",
    ),
    rule(
        "secret_file_sent",
        "exfiltration",
        "critical",
        "sends a file that holds secrets over the network",
        "curl|wget|nc|socat|invoke|scp",
        rf"(?:\b{NET}\b[^\n]{{0,200}}?(?:@|<\s?|\$\(\s?cat\s|--post-file[ =]|(?:-T"
        rf"|--upload-file)\s)[^\s)]{{0,60}}?{PRIVATE_FILE}"
        rf"|(?:\bcat|base64|tar|xxd)\b[^\n|]{{0,120}}?{PRIVATE_FILE}[^\n|]{{0,60}}\|[^\n]{{0,80}}?\b{NET}\b)",
    ),
    rule(
        "environment_posted",
        "exfiltration",
        "critical",
        "sends all environment variables over the network",
        "os.environ|process.env",
        r"(?:requests\.|httpx\.|urlopen|fetch\(|axios)[^\n]{0,160}?(?:dict\(os\.environ\)|=\s?os\.environ\s?[,)]"
        r"|JSON\.stringify\(process\.env\))",
    ),
    rule(
        "drop_host",
        "exfiltration",
        "high",
        "names a host that exists to collect what is sent to it",
        "webhook.site|requestbin|burpcollab|interact.sh|oast.|pipedream.net|beeceptor|canarytokens",
        r"\b(?:webhook\.site|requestbin\.\w{2,4}|burpcollaborator\.net|interact\.sh|oast\.(?:fun|pro|live|site|me)"
        r"|[\w-]{1,40}\.m\.pipedream\.net|beeceptor\.com|canarytokens\.com)\b",
    ),
    rule(
        "names_as_carrier",
        "exfiltration",
        "high",
        "hides data in the names that it looks up",
        "nslookup|dig |host ",
        r"\b(?:nslookup|dig|host)\s[^\n]{0,80}?\$\(\s?(?:cat|base64|whoami|env|hostname|echo)\b[^\n]{0,80}?\)\.",
    ),
    rule(
        "picture_as_carrier",
        "exfiltration",
        "high",
        "has the model put what it knows into the address of a picture",
        "](http",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{1,200}?[?&=/](?:\{|\$\{?|<|\[)[^)\s]{0,40}?"
        r"(?:secret|token|password|api_?key|conversation|history|memory|context|env)",
    ),
)

DESTRUCTIVE = (
    rule(
        "delete_everything",
        "destructive",
        "critical",
        "deletes the system's or the user's files",
        "rm ",
        r"\brm\s{1,4}(?:-{1,2}[\w-]{1,24}\s{1,4}){0,4}-(?:[a-z]{0,4}r[a-z]{0,4}"
        r"|-recursive)\s{1,4}(?:-{1,2}[\w-]{1,24}\s{1,4}){0,3}"
        r"(?:--\s)?[\"']?(?:/|~|\$\{?HOME\}?|/\*|~/\*|/(?:etc|usr|var|home|boot|lib|bin)/?\*?)[\"']?(?=\s|$|[;&|`)])",
    ),
    rule(
        "overwrite_disk",
        "destructive",
        "critical",
        "overwrites or formats a disk",
        "mkfs|of=/dev|> /dev|format |diskutil|wipefs",
        r"(?:\bmkfs(?:\.\w{1,8})?\s{1,4}(?:-\S{1,12}\s{1,4}){0,4}/dev/|\bdd\s[^\n]{0,80}?\bof=/dev/(?:sd|nvme|hd"
        r"|disk|mmc|vd)"
        r"|>\s?/dev/(?:sd|nvme|hd|vd)[a-z0-9]|\bwipefs\s{1,4}-a\s|\bformat\s{1,4}c:|\bdiskutil\s{1,4}eraseDisk\b)",
    ),
    rule(
        "fork_bomb",
        "destructive",
        "critical",
        "fills the machine with processes",
        ":|",
        r":\s?\(\s?\)\s?\{\s?:\s?\|\s?:\s?&\s?\}\s?;\s?:",
    ),
    rule(
        "delete_everything_in_code",
        "destructive",
        "critical",
        "deletes the system's or the user's files",
        "rmtree|rmsync|remove-item|rmdirsync",
        r"(?:rmtree|rm(?:dir)?Sync)\(\s?(?:[\"']/[\"']|Path\.home\(\)|os\.path\.expanduser\([\"']~[\"']\)"
        r"|os\.homedir\(\))"
        r"|Remove-Item\s[^\n]{0,60}?-Recurse[^\n]{0,40}?\s[\"']?(?:[Cc]:\\|\$HOME|\$env:USERPROFILE)[\"'\\]?(?=\s|$)",
    ),
    rule(
        "open_to_all",
        "destructive",
        "high",
        "lets everybody write to the system's files",
        "chmod",
        r"\bchmod\s{1,4}(?:-\w{1,6}\s{1,4}){0,2}(?:0?777|a\+rwx)\s{1,4}[\"']?(?:/|/etc|/usr|/var|~"
        r"|\$HOME)[\"']?/?(?=\s|$|[;&|])",
    ),
    rule(
        "history_erased",
        "destructive",
        "high",
        "wipes out traces of what was done",
        "history|shred|/var/log|bash_history",
        r"(?:\bhistory\s{1,4}-c\b\s{0,4}(?:&&|;)|\bshred\s[^\n]{0,40}?(?:history|/var/log)"
        r"|(?:>|rm\s(?:-\w{1,4}\s)?)\s?(?:~/\.(?:bash|zsh)_history|/var/log/\S{1,40}))",
    ),
)

PERSISTENCE = (
    rule(
        "login_key_added",
        "persistence",
        "critical",
        "adds a key that lets somebody log in",
        "authorized_keys",
        r"(?:>>?|tee\s(?:-a\s)?|open\()\s?[\"']?[^\n\"']{0,60}?\.ssh/authorized_keys",
    ),
    rule(
        "preloaded_library",
        "persistence",
        "critical",
        "has every program load its code",
        "ld.so.preload|currentversion\\run",
        r"(?:>>?\s?/etc/ld\.so\.preload|reg(?:\.exe)?\s{1,4}add\s[^\n]{0,80}?CurrentVersion\\\\?Run\b)",
    ),
    rule(
        "agent_orders_changed",
        "persistence",
        "high",
        "writes into the files that tell agents what to do",
        "agents.md|claude.md|soul.md|memory.md|user.md|.cursorrules|gemini.md|copilot-instructions",
        r"(?:(?<!\S)>>?|\btee\s(?:-a\s)?|sed\s{1,4}-i[^\n]{0,80}?)\s{0,4}[\"']?(?:~|\$HOME|\$\{HOME\}"
        r"|/)[^\s\"'|;]{0,80}?"
        r"(?:AGENTS|CLAUDE|SOUL|MEMORY|USER|GEMINI)\.md|(?:(?<!\S)>>?|\btee\s)\s{0,4}\S{0,60}?(?:\.cursorrules"
        r"|copilot-instructions\.md)",
    ),
    rule(
        "login_script_runs_download",
        "persistence",
        "high",
        "has every new shell run what it fetches or decodes",
        "bashrc|zshrc|profile|crontab",
        rf"(?:{NET}|base64\s{{1,4}}-d|eval)\b[^\n]{{0,160}}?(?:>>\s?(?:~|\$HOME|\$\{{HOME\}})/\.(?:bashrc|zshrc"
        rf"|bash_profile|profile|zprofile)|\|\s?crontab\b)"
        rf"|crontab\b[^\n]{{0,120}}?{NET}[^\n]{{0,80}}?{_PIPED}",
    ),
    rule(
        "starts_by_itself",
        "persistence",
        "medium",
        "starts again by itself",
        "crontab|systemctl|launchctl|rc.local|schtasks",
        r"(?:\|\s?crontab\s{0,4}-|\bcrontab\s{1,4}-(?!l\b)|\bsystemctl\s{1,4}(?:--user\s{1,4})?enable\b"
        r"|\blaunchctl\s{1,4}(?:load|bootstrap)\b"
        r"|>>?\s?/etc/rc\.local|\bschtasks\s{1,4}/create\b)",
    ),
)

NETWORK = (
    rule(
        "reverse_shell",
        "network",
        "critical",
        "gives somebody far away a shell",
        "/dev/tcp|/dev/udp|nc |ncat|socat|socket|mkfifo",
        r"(?:(?:ba|z)?sh\s{1,4}-i[^\n]{0,20}?[>&]{1,2}\s?/dev/(?:tcp|udp)/|(?:exec|cat)\s[^\n]{0,20}?<>?\s?/dev/tcp/"
        r"|\b(?:nc|ncat|netcat)\b[^\n]{0,60}?\s-{1,2}(?:e|c|exec)\s{1,4}(?:/bin/|/usr/bin/)?(?:ba|z|da)?sh\b"
        r"|\bsocat\b[^\n]{0,80}?exec:[\"']?(?:/bin/)?(?:ba)?sh\b"
        r"|\bmkfifo\b[^\n]{0,80}?\|[^\n]{0,40}?\bsh\b[^\n]{0,40}?\|\s?(?:nc|ncat)\b"
        r"|socket\.socket\([^\n]{0,160}?(?:dup2|pty\.spawn|subprocess\.call\(\[?[\"']/bin/))",
    ),
    rule(
        "miner",
        "mining",
        "critical",
        "mines coins on somebody else's machine",
        "xmrig|stratum|coinhive|minerd|nanopool",
        r"(?:\bxmrig\b|stratum\+(?:tcp|ssl)://|\bcoinhive\b|\bminerd\s{1,4}-|\bnanopool\.org\b)",
    ),
)

OBFUSCATION = (
    rule(
        "decoded_and_run",
        "obfuscation",
        "critical",
        "runs what it decodes",
        "base64|xxd|atob|fromhex|b64decode|decompress|-enc|frombase64|rot13|| rev",
        rf"(?:(?:base64\s{{1,4}}(?:-\w{{1,4}}\s{{1,4}}){{0,2}}(?:-d|-D|--decode)|xxd\s{{1,4}}-r"
        rf"|openssl\s{{1,4}}(?:enc\s{{1,4}}-d|base64\s{{1,4}}-d)|\brev)\b[^\n|]{{0,80}}?{_PIPED}"
        r"|\b(?:eval|exec)\s?\(\s?(?:[\w.]{0,40}\(){0,3}?(?:b64decode|base64\.|atob|bytes\.fromhex"
        r"|bytearray\.fromhex|zlib\.decompress|codecs\.decode|Buffer\.from\([^\n]{1,400}?base64)"
        r"|\bpowershell(?:\.exe)?\b[^\n]{0,80}?\s-(?:e|en|enc|encodedcommand)\s{1,4}[A-Za-z0-9+/=]{20}"
        r"|FromBase64String\([^\n]{0,200}?\)[^\n]{0,80}?\|\s?iex\b"
        r"|\beval\s{1,4}[\"']?\$\([^\n]{0,160}?(?:base64\s{1,4}-d|base64\s{1,4}--decode|xxd\s-r|\brev\b))",
    ),
    rule(
        "long_code_string",
        "obfuscation",
        "medium",
        "holds a long run of coded characters",
        "\\x|fromcharcode|chr(",
        r"(?:(?:\\x[0-9a-f]{2}){24}|String\.fromCharCode\((?:\s?\d{1,3}\s?,){10}|(?:chr\(\d{1,3}\)\s?[+.]\s?){8})",
    ),
)

EXECUTION = (
    rule(
        "download_run_in_code",
        "execution",
        "critical",
        "runs what it fetches",
        "exec(|eval(|iex|downloadstring",
        r"(?:\b(?:exec|eval)\s?\(\s?(?:requests\.get|urllib\.request\.urlopen|urlopen|httpx\.get"
        r"|await\s(?:\(?await\s)?fetch)\("
        r"|\biex\b[^\n]{0,60}?(?:DownloadString|Invoke-WebRequest|\biwr\b)|DownloadString\([^\n]{0,200}?\|\s?iex\b)",
    ),
    rule(
        "download_run",
        "supply chain",
        "high",
        "runs a script from the network without looking at it",
        "curl|wget|iwr|irm",
        rf"(?:\b(?:curl|wget)\b[^\n|]{{0,240}}?{_PIPED}|\b(?:ba|z)?sh\s{{1,4}}(?:-c\s{{1,4}})?[\"']?(?:<\(|\$\("
        rf"|`)\s?(?:curl|wget)\b"
        r"|\b(?:iwr|irm)\b[^\n|]{0,200}?\|\s?iex\b)",
    ),
)

SUPPLY_CHAIN = (
    rule(
        "unchecked_download_run",
        "supply chain",
        "critical",
        "runs a script from the network and takes it from anybody",
        "curl|wget",
        rf"(?:\bcurl\b[^\n|]{{0,120}}?\s(?:-\w{{0,6}}k\w{{0,6}}|--insecure)\s[^\n|]{{0,160}}?{_PIPED}"
        rf"|\bwget\b[^\n|]{{0,120}}?--no-check-certificate[^\n|]{{0,160}}?{_PIPED}"
        rf"|\b(?:curl|wget)\b[^\n|]{{0,120}}?\shttp://(?!localhost|127\.|0\.0\.0\.0)[^\n|]{{0,160}}?{_PIPED})",
    ),
    rule(
        "packages_from_elsewhere",
        "supply chain",
        "high",
        "takes packages from a place that nobody checks",
        "install",
        r"\b(?:pip3?|uv|npm|yarn|pnpm|gem|cargo)\b[^\n]{0,60}?\binstall\b[^\n]{0,160}?(?:(?:--index-url"
        r"|--extra-index-url|-i|--registry|--source)[ =]http://(?!localhost|127\.)"
        r"|\sgit\+http://|\shttp://(?!localhost|127\.)\S{1,120}?\.(?:whl|tar\.gz|tgz|zip))",
    ),
    rule(
        "packages_unchecked",
        "supply chain",
        "medium",
        "takes packages without the usual checks",
        "trusted-host|extra-index-url",
        r"\binstall\b[^\n]{0,120}?--(?:trusted-host|extra-index-url)[ =]",
    ),
)

PRIVILEGE = (
    rule(
        "rights_for_good",
        "privilege",
        "high",
        "gives a program the rights of the administrator for good",
        "nopasswd|chmod|setuid|sudoers",
        r"(?:NOPASSWD:\s?ALL|>>?\s?/etc/sudoers\b|\bchmod\s{1,4}(?:u\+s|\+s|[24]7[0-7]{2})\s|\bos\.setuid\(0\))",
    ),
    rule(
        "whole_machine_in_container",
        "privilege",
        "high",
        "gives a container the whole machine",
        "docker|podman",
        r"\b(?:docker|podman)\s{1,4}run\b[^\n]{0,200}?(?:\s-v\s{1,4}/:/|--volume[ =]/:/"
        r"|--pid[ =]host[^\n]{0,80}?--privileged)",
    ),
    rule(
        "more_rights",
        "privilege",
        "medium",
        "asks for more rights than usual",
        "privileged|docker.sock|dangerously|bypasspermissions|setcap",
        r"(?:\bdocker\s{1,4}run\b[^\n]{0,160}?--privileged|/var/run/docker\.sock:|--dangerously-skip-permissions"
        r"|--dangerously-bypass"
        r"|bypassPermissions|\bsetcap\s{1,4}cap_)",
    ),
)

CREDENTIALS = (
    rule(
        "credentials_read",
        "credentials",
        "high",
        "reads keys or passwords that are stored on the machine",
        "cat |type |open(|find-generic|find-internet|export-secret|login data|lsass|read",
        r"(?:\b(?:cat|less|head|tail|type|xxd|base64|strings)\s{1,4}[\"']?(?:~|\$HOME|\$\{HOME\}|/home/\S{1,32}"
        r"|/root)/(?:\.ssh/id_(?!\w{1,12}\.pub)\w{1,12}|\.aws/credentials|\.netrc|\.git-credentials|\.gnupg/)"
        r"|\bcat\s{1,4}/etc/shadow\b|open\([\"'](?:~|/home|/root)[^\"'\n]{0,60}?(?:\.ssh/id_|\.aws/credentials"
        r"|\.git-credentials)"
        r"|\bsecurity\s{1,4}find-(?:generic|internet)-password\b[^\n]{0,120}?\s-w\b[^\n]{0,120}?(?:Chrome"
        r"|Safe Storage|login)"
        r"|\bgpg\b[^\n]{0,60}?--export-secret-keys\b|(?:Chrome|Chromium|Brave|Edge)[^\n]{0,80}?/Login Data\b"
        r"|\blsass\.(?:exe|dmp)\b|\bmimikatz\b)",
    ),
)

TRAVERSAL = (
    rule(
        "climbs_out",
        "traversal",
        "high",
        "climbs out of its folder to the system's files",
        "../..|..\\..",
        r"(?:\.\.[/\\]){3,12}(?:etc|root|proc|var/log|windows[/\\]system32|home/)",
    ),
    rule(
        "process_memory",
        "traversal",
        "high",
        "reads the memory or the environment of running programs",
        "/proc/",
        r"\b(?:cat|strings|head|dd\sif=|open\([\"'])\s?/proc/(?:self|\d{1,7}|\*|\$\w{1,20})/(?:environ|mem)\b",
    ),
)

RULES: tuple[GuardRule, ...] = (
    *EXFILTRATION,
    *DESTRUCTIVE,
    *PERSISTENCE,
    *NETWORK,
    *OBFUSCATION,
    *EXECUTION,
    *SUPPLY_CHAIN,
    *PRIVILEGE,
    *CREDENTIALS,
    *TRAVERSAL,
    *ORDERS,
)
