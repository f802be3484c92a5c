"""A scanner for skills from outside: what is in the files, a verdict, and what the policy says for their origin.

Pure over a list of files. Patterns are a first fence: they say what to look at, and no verdict replaces looking. There
is no way for a skill to exempt its own files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from herma.safety.scan import scan
from herma.skills.guard_rules import RULES
from herma.types import Severity, SkillFile, SkillFinding, SkillReport, Trust, Verdict

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
