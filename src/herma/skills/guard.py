"""Scanner and install policy for skills from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from herma.safety.scan import scan
from herma.skills.document import category_problem, file_problem, name_problem, read_skill
from herma.skills.types import (
    Incoming,
    Severity,
    Skill,
    SkillFile,
    SkillFinding,
    SkillOutcome,
    SkillRefused,
    SkillReport,
    SkillUnchanged,
    Trust,
    UnreadableSkill,
    Verdict,
)
from herma.types import Author

if TYPE_CHECKING:
    from herma.skills.library import Catalogue, SkillWriter


# ---------- skills.guard_rule
#
# One rule of the skill scanner, and what several of them look for.

PRIVATE_FILE = (
    r"(?:\.ssh/|\bid_(?:rsa|ed25519|ecdsa)\b|\.aws/credentials|\.netrc\b|/etc/(?:passwd|shadow)\b|\.kube/config"
    r"|\.gnupg/|\.git-credentials|\.npmrc\b|\.pypirc\b|\.env\b(?!\.)|Login Data|wallet\.dat)"
)
NET = r"(?:curl|wget|nc|ncat|socat|telnet|Invoke-WebRequest|Invoke-RestMethod)"


@dataclass(frozen=True)
class GuardRule:
    """`hint`: a piece that must be in the line, in small letters, before the expression is worth trying."""

    id: str
    category: str
    severity: Severity
    why: str
    hint: tuple[str, ...]
    pattern: str

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)


def rule(id_: str, category: str, severity: Severity, why: str, hint: str, pattern: str) -> GuardRule:
    return GuardRule(id_, category, severity, why, tuple(hint.split("|")), pattern)


# ---------- skills.guard_orders
#
# What no skill has a reason to say to a model, in words or in commands: give up your orders, hand over secrets.

_SEND = r"(?:send|upload|post|transmit|forward|e-?mail|deliver|leak|exfiltrate)"
_GUARDED = r"\$\{?\w{0,40}(?:API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)\w{0,20}\}?"

ORDERS = (
    rule(
        "orders_overridden",
        "injection",
        "critical",
        "tells the model to give up the orders that it has",
        "instruction|prompt|rules|orders|directions",
        r"\b(?:ignore|disregard|forget|override)\s{1,4}(?:(?:all|any|the|your|of|every|these|those)\s{1,4}){0,4}"
        r"(?:previous|prior|above|earlier|preceding|foregoing|system|existing)\s{1,4}(?:\w{1,20}\s{1,4})?"
        r"(?:instructions?|prompts?|rules|orders|directions)\b",
    ),
    rule(
        "secret_file_asked_for",
        "exfiltration",
        "critical",
        "asks for a file that holds secrets to be sent away",
        "send|upload|post|transmit|forward|mail|deliver|leak|exfiltrate",
        rf"\b{_SEND}\b[^\n]{{0,80}}?{PRIVATE_FILE}[^\n]{{0,80}}?(?:https?://|\bto\s{{1,4}}\S{{1,60}}(?:@|\.)\S)",
    ),
    rule(
        "secret_variable_sent",
        "exfiltration",
        "critical",
        "pipes a secret to the network",
        "key|token|secret|passw|credential",
        rf"\b(?:echo|printf)\b[^\n|]{{0,80}}?{_GUARDED}[^\n|]{{0,40}}\|[^\n]{{0,80}}?\b{NET}\b",
    ),
)


# ---------- skills.guard_rules
#
# What the skill scanner looks for, line by line. Every repetition is bounded, so a line is read in linear time.
#
# critical makes a skill dangerous, high calls for caution; medium and low are said and change nothing.

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


# ---------- skills.guard
#
# A scanner for skills from outside: what is in the files, a verdict, and what the policy says for their origin.
#
# Pure over a list of files. Patterns are a first fence: they say what to look at, and no verdict replaces looking.
# There is no way for a skill to exempt its own files.

MOST_FILES = 50
MOST_FILE = 256 * 1024
MOST_TOTAL = 1024 * 1024
_LINE = 4_000
_OVERLAP = 400
_EXCERPT = 160
_PROGRAMS = (".exe", ".dll", ".so", ".dylib", ".bin", ".pyc", ".class", ".jar", ".wasm", ".node", ".apk", ".dmg")
_PACKAGES = (".msi", ".deb", ".rpm", ".scr", ".com", ".pyd", ".o", ".a")
_SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1", ".fish", "")
_PROSE = (".md", ".txt", ".rst", ".mdx", "")
_WARNED = re.compile(
    r"(?i)\b(?:never|don'?t|do not|must not|avoid|refuse[sd]?|block(?:s|ed|ing)?|forbid(?:den|s)?|prevent(?:s|ed)?"
    r"|reject(?:s|ed)?"
    r"|dangerous|destructive|malicious|attack(?:s|er)?|unsafe|catch(?:es)?|detect(?:s|ed)?|flag(?:s|ged)?|warn(?:s|ing)?)\b"
)
_KNOWN_INSTALLERS = re.compile(
    r"https://(?:astral\.sh|sh\.rustup\.rs|get\.docker\.com|bun\.sh|deno\.land|ollama\.com|brew\.sh|claude\.ai"
    r"|raw\.githubusercontent\.com/(?:Homebrew/install|nvm-sh/nvm|NousResearch/hermes-agent)/|get\.pnpm\.io"
    r"|install\.python-poetry\.org"
    r"|deb\.nodesource\.com|tailscale\.com|fly\.io|cli\.github\.com|get\.sdkman\.io|foundry\.paradigm\.xyz|pixi\.sh"
    r"|app\.factory\.ai|opencode\.ai|cursor\.com)\b",
    re.IGNORECASE,
)
"""Installers that their makers document in this form: said, but no reason for caution."""
_SOUGHT = re.compile(r"\bgrep\b[^\n|;'\"]{0,60}['\"][^'\"]{0,120}$")
_QUOTES = tuple("\"'“”‘’«»")
_PLACEHOLDER_KEY = re.compile(r"AAAA\.\.\.|<[\w -]{1,40}>|YOUR[_ ]", re.IGNORECASE)
_CHARACTERS = ("lookalike_letters", "tag_character", "invisible_character", "control_character", "credential")

Decision: TypeAlias = Literal["allow", "ask", "block"]
POLICY: dict[Trust, dict[Verdict, Decision]] = {
    "builtin": {"safe": "allow", "caution": "allow", "dangerous": "allow"},
    "trusted": {"safe": "allow", "caution": "allow", "dangerous": "block"},
    "community": {"safe": "allow", "caution": "block", "dangerous": "block"},
    "agent-created": {"safe": "allow", "caution": "allow", "dangerous": "ask"},
}


def decide(verdict: Verdict, trust: Trust, *, force: bool = False) -> Decision:
    """What to do. Force gets past caution, never past danger."""
    decision = POLICY[trust][verdict]
    return "allow" if force and verdict != "dangerous" else decision


def inspect(files: Sequence[SkillFile]) -> SkillReport:
    """Everything that the scanner objects to in these files, and the verdict."""
    findings = [*_structure(files), *(finding for file in files for finding in inspect_text(file))]
    unique = dict.fromkeys(sorted(findings, key=lambda f: (_ORDER.index(f.severity), f.file, f.line, f.rule)))
    return SkillReport(_verdict(unique), tuple(unique), len(files))


def inspect_text(file: SkillFile) -> Iterator[SkillFinding]:
    """What one file says that it should not."""
    if file.text is None:
        return
    prose = _suffix(file.path) in _PROSE
    for number, line in enumerate(file.text.split("\n"), 1):
        small = line.lower()
        for rule in RULES:
            if not any(hint in small for hint in rule.hint):
                continue
            found = next((m for piece in _pieces(line) if (m := rule.expression.search(piece))), None)
            if found is None:
                continue
            start = line.find(found[0])
            mentioned = prose and _is_mention(line, start, start + len(found[0]))
            severity = "medium" if mentioned else rule.severity
            if rule.id == "download_run" and _KNOWN_INSTALLERS.search(line):
                severity = "low"
            elif rule.id == "login_key_added" and _PLACEHOLDER_KEY.search(line):
                severity = "medium"
            yield SkillFinding(rule.id, rule.category, severity, file.path, number, rule.why, _short(found[0]))
    yield from _by_scan(file)


_ORDER: tuple[Severity, ...] = ("critical", "high", "medium", "low")


def _verdict(findings: Iterable[SkillFinding]) -> Verdict:
    severities = {finding.severity for finding in findings}
    return "dangerous" if "critical" in severities else "caution" if "high" in severities else "safe"


def _by_scan(file: SkillFile) -> Iterator[SkillFinding]:
    """What the scanner of memory finds: orders to the model, hidden characters, credentials."""
    text = file.text or ""
    prose = _suffix(file.path) in _PROSE
    for finding in scan(text):
        start, end = finding.span
        mentioned = finding.rule not in _CHARACTERS and prose and _is_mention(text, start, end)
        severity: Severity = "medium" if mentioned else finding.severity
        line = text.count("\n", 0, start) + 1
        yield SkillFinding(finding.rule, "injection", severity, file.path, line, finding.why, _short(text[start:end]))


def _is_mention(text: str, start: int, end: int) -> bool:
    """Whether prose only speaks of it: warns of it just before, quotes nothing but it, or looks for it. Backticks are
    no such quotes: what stands in them is meant to be run."""
    before = text[max(0, start - 160) : start]
    line = before[before.rfind("\n") + 1 :]
    quoted = before[-1:] in _QUOTES and text[end : end + 3].lstrip(".,;!?…")[:1] in _QUOTES
    return bool(quoted or _WARNED.search(line) or _SOUGHT.search(line))


def _structure(files: Sequence[SkillFile]) -> Iterator[SkillFinding]:
    def said(rule: str, severity: Severity, file: str, why: str) -> SkillFinding:
        return SkillFinding(rule, "structure", severity, file, 0, why)

    for file in files:
        suffix = _suffix(file.path)
        if file.link == "?":
            yield said("broken_link", "medium", file.path, "a link that leads nowhere")
        elif file.link:
            yield said("link_leads_out", "critical", file.path, f"a link that leads out of the skill, to {file.link}")
        elif file.text is None and suffix in (*_PROGRAMS, *_PACKAGES):
            yield said("program", "critical", file.path, "a program that nobody can read")
        elif file.text is None and not file.path.startswith("assets/"):
            yield said("not_text", "medium", file.path, "not text, and not under assets/")
        if file.size > MOST_FILE:
            yield said("large_file", "medium", file.path, f"{file.size:,} bytes, more than {MOST_FILE:,}")
        if file.executable and suffix not in _SCRIPTS:
            yield said("executable", "medium", file.path, "marked as a program, which it should not be")
    if len(files) > MOST_FILES:
        yield said("many_files", "medium", "", f"{len(files)} files, more than {MOST_FILES}")
    total = sum(file.size for file in files)
    if total > MOST_TOTAL:
        yield said("large_skill", "high", "", f"{total:,} bytes together, more than {MOST_TOTAL:,}")


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    return f".{name.rpartition('.')[2].lower()}" if "." in name else ""


def _pieces(line: str) -> Iterator[str]:
    """A line in pieces that overlap, so that the time for one never grows with its square."""
    for start in range(0, max(len(line), 1), _LINE - _OVERLAP):
        yield line[start : start + _LINE]


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _EXCERPT else plain[:_EXCERPT] + "…"


# ---------- skills.incoming
#
# A skill from outside, as files in memory. Pure: whoever reads a folder or an archive hands them over.

DOCUMENT = "SKILL.md"


def described(incoming: Incoming) -> list[SkillFile]:
    """The files as the scanner reads them."""
    return [*(_described(*file) for file in incoming.files), *incoming.odd]


def read_incoming(incoming: Incoming, category: str = "", name: str = "") -> Skill | SkillRefused:
    """The skill that the files make, at the place it would have."""

    def refused(message: str) -> SkillRefused:
        return SkillRefused(name=name or incoming.folder, kind="invalid", message=message)

    document = next((data for path, data, _ in incoming.files if path == DOCUMENT), None)
    if document is None:
        return refused(f"{incoming.source} has no SKILL.md.")
    skill = read_skill(document, name or incoming.folder)
    if isinstance(skill, UnreadableSkill):
        return refused(f"The SKILL.md of {incoming.source} is refused: {skill.reason}.")
    called = name or skill.name
    problem = name_problem(called) or category_problem(category)
    if problem:
        return refused(problem)
    for path, _, _ in incoming.files:
        if reason := _misplaced(path):
            return refused(reason)
    folded = [path.casefold() for path, _, _ in incoming.files]
    if len(set(folded)) != len(folded):
        return refused(f"{incoming.source} has files that differ in nothing but case.")
    return replace(skill, name=called, path=f"{category}/{called}" if category else called, category=category)


def _described(path: str, data: bytes, executable: bool) -> SkillFile:
    try:
        text: str | None = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    if text is not None and "\x00" in text:
        text = None
    return SkillFile(path, len(data), text, executable)


def _misplaced(path: str) -> str:
    """Files beside SKILL.md may have any name, LICENSE for one; nothing may lead out."""
    if path == DOCUMENT or not file_problem(path):
        return ""
    parts = path.split("/")
    strange = any(part in ("", ".", "..") or part.startswith(".") for part in parts) or "\\" in path or ":" in path
    return f"{path!r} is no path inside a skill." if strange or len(parts) > 8 else ""


def renamed(document: bytes, name: str) -> bytes:
    """A SKILL.md whose front matter gives another name; everything else to the byte."""
    lines = document.split(b"\n")
    for at, line in enumerate(lines[1:], 1):
        if line.rstrip() == b"---":
            break
        if line.startswith(b"name:"):
            end = b"\r" if line.endswith(b"\r") else b""
            return b"\n".join([*lines[:at], b"name: " + name.encode() + end, *lines[at + 1 :]])
    return b"\n".join([lines[0], b"name: " + name.encode(), *lines[1:]])


# ---------- skills.installing
#
# Taking one skill in from outside: scanned, judged by the policy for its origin, then written whole.


@dataclass(frozen=True, slots=True)
class InstallWish:
    """How somebody wants skills taken in. `rehearsal`: only to be told what would happen."""

    trust: Trust = "community"
    category: str = ""
    name: str = ""
    force: bool = False
    rehearsal: bool = False


@dataclass(frozen=True, slots=True)
class Installed:
    """What became of one skill from outside, and what the scanner said of it."""

    source: str
    outcome: SkillOutcome
    report: SkillReport


def take_in(
    incoming: Incoming, wish: InstallWish, catalogue: Catalogue, writer: SkillWriter, author: Author
) -> Installed:
    """Take it in, unless the scanner and the policy, or what is there already, stand against it."""
    if wish.name:
        files = [
            (path, renamed(data, wish.name) if path == DOCUMENT else data, run) for path, data, run in incoming.files
        ]
        incoming = replace(incoming, files=files)
    report = inspect(described(incoming))
    skill = read_incoming(incoming, wish.category, wish.name)
    if isinstance(skill, SkillRefused):
        return Installed(incoming.source, skill, report)
    if against := _against(skill, report, wish, catalogue):
        return Installed(incoming.source, against, report)
    if wish.rehearsal:
        message = f"{skill.name} would be installed at {skill.path}."
        return Installed(incoming.source, SkillUnchanged(name=skill.name, message=message), report)
    reason = f"from {incoming.source}; scanner: {report.verdict}"
    return Installed(incoming.source, writer.take_in(skill, incoming.files, author, reason, incoming.source), report)


def _against(skill: Skill, report: SkillReport, wish: InstallWish, catalogue: Catalogue) -> SkillRefused | None:
    if decide(report.verdict, wish.trust, force=wish.force) != "allow":
        message = f"{skill.name} is not installed: the scanner says {report.verdict}, and it comes from {wish.trust}."
        return SkillRefused(name=skill.name, kind="blocked", message=message)
    shelf = catalogue.shelf()
    taken = next((each.path for each in shelf.skills if each.name.casefold() == skill.name.casefold()), None)
    if taken is not None:
        message = f"A skill named {skill.name} is there already ({taken}); archive it first, or give another name."
        return SkillRefused(name=skill.name, kind="exists", message=message, matches=(taken,))
    return None
