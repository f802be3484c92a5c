"""Scan a skill from outside: patterns line by line, Python as a syntax tree, the shape of its files; then a verdict.

Pure over a list of files. A verdict says what to look at; it does not replace looking. A skill cannot exempt its own
files.
"""

from __future__ import annotations

import ast
import base64
import re
import textwrap
import tomllib
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple, TypeAlias

from herma.safety.scan import scan
from herma.skills.rows import Severity, SkillFile, SkillFinding, SkillReport, Trust, Verdict

MOST_FILES = 50
MOST_FILE = 256 * 1024
MOST_TOTAL = 1024 * 1024
_LINE = 4_000
_OVERLAP = 400
_EXCERPT = 160
_REPORTED = 20
"""Findings of one rule and severity that are reported for one file."""
_PROGRAMS = (
    *(".exe", ".dll", ".so", ".dylib", ".bin", ".pyc", ".class", ".jar", ".wasm", ".node", ".apk", ".dmg"),
    *(".msi", ".deb", ".rpm", ".scr", ".com", ".pyd", ".o", ".a"),
)
_SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1", ".fish", "")
_PROSE = (".md", ".txt", ".rst", ".mdx", "")
_WARNED = re.compile(
    r"(?i)\b(?:never|don'?t|do not|must not|avoid|refuse[sd]?|block(?:s|ed|ing)?|forbid(?:den|s)?|prevent(?:s|ed)?"
    r"|reject(?:s|ed)?"
    r"|dangerous|destructive|malicious|attack(?:s|er)?|unsafe|catch(?:es)?|detect(?:s|ed)?|flag(?:s|ged)?|warn(?:s"
    r"|ing)?)\b"
)
_KNOWN_INSTALLERS = re.compile(
    r"https://(?:astral\.sh|sh\.rustup\.rs|get\.docker\.com|bun\.sh|deno\.land|ollama\.com|brew\.sh|claude\.ai"
    r"|raw\.githubusercontent\.com/(?:Homebrew/install|nvm-sh/nvm|NousResearch/hermes-agent)/|get\.pnpm\.io"
    r"|install\.python-poetry\.org"
    r"|deb\.nodesource\.com|tailscale\.com|fly\.io|cli\.github\.com|get\.sdkman\.io|foundry\.paradigm\.xyz|pixi\.sh"
    r"|app\.factory\.ai|opencode\.ai|cursor\.com)\b",
    re.IGNORECASE,
)
"""Installers that their makers document in this form: reported, but no reason for caution."""
_SOUGHT = re.compile(r"\bgrep\b[^\n|;'\"]{0,60}['\"][^'\"]{0,120}$")
_QUOTES = tuple("\"'“”‘’«»")
_RUN_NEXT = re.compile(
    r"(?:(?<!\w)-\w{0,3}c|\b(?:eval|exec|ssh\s{1,4}\S{1,80})|(?:system|popen|run|call|check_call|check_output|getoutput"
    r"|exec\w{0,8}|spawn\w{0,8})\(\s{0,4}[bfr]{0,2})\s{0,4}$",
    re.IGNORECASE,
)
"""Words before a quoted command that is run."""
_PLACEHOLDER_KEY = re.compile(r"AAAA\.\.\.|<[\w -]{1,40}>|YOUR[_ ]", re.IGNORECASE)
_CHARACTERS = ("lookalike_letters", "tag_character", "invisible_character", "control_character", "credential")
_ORDER: tuple[Severity, ...] = ("critical", "high", "medium", "low")
Decision: TypeAlias = Literal["allow", "ask", "block"]
POLICY: dict[Trust, dict[Verdict, Decision]] = {
    "builtin": {"safe": "allow", "caution": "allow", "dangerous": "allow"},
    "trusted": {"safe": "allow", "caution": "allow", "dangerous": "block"},
    "community": {"safe": "allow", "caution": "block", "dangerous": "block"},
    "agent-created": {"safe": "allow", "caution": "allow", "dangerous": "ask"},
}


def decide(verdict: Verdict, trust: Trust, *, force: bool = False) -> Decision:
    """Return what the policy says. `force` overrides caution, never danger."""
    decision = POLICY[trust][verdict]
    return "allow" if force and verdict != "dangerous" else decision


def inspect(files: Sequence[SkillFile]) -> SkillReport:
    """Return all findings in these files, and the verdict."""
    findings = [*_by_structure(files), *(finding for file in files for finding in inspect_text(file))]
    unique = dict.fromkeys(sorted(findings, key=lambda f: (_ORDER.index(f.severity), f.file, f.line, f.rule)))
    severities = {finding.severity for finding in unique}
    verdict: Verdict = "dangerous" if "critical" in severities else "caution" if "high" in severities else "safe"
    return SkillReport(verdict, tuple(unique), len(files))


def inspect_text(file: SkillFile) -> Iterator[SkillFinding]:
    """Yield the findings in one file: up to `MOST_TOTAL` characters of it, up to `_REPORTED` findings of a kind."""
    if file.text is None:
        return
    text, counts = file.text[:MOST_TOTAL], Counter[tuple[str, Severity]]()
    for finding in (*_by_rules(file.path, text), *_by_syntax(file.path, text), *_by_scan(file.path, text)):
        kind = finding.rule, finding.severity
        counts[kind] += 1
        if counts[kind] <= _REPORTED:
            yield finding


# ── rules, line by line ──


class GuardRule(NamedTuple):
    """One rule of guard_rules.toml."""

    id: str
    category: str
    severity: Severity
    why: str
    hints: tuple[str, ...]
    pattern: str


@cache
def rules() -> tuple[GuardRule, ...]:
    """Read the rules."""
    made = []
    for one in _table()["rule"]:
        id_, category, severity, why, hints = (one[name] for name in ("id", "category", "severity", "why", "hints"))
        made.append(GuardRule(id_, category, severity, why, tuple(hints), _joined(one["pattern"])))
    return tuple(made)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("guard_rules.toml").read_text("utf-8"))


def _joined(pattern: str | list[str]) -> str:
    return re.sub(r"<([A-Z_]+)>", lambda found: _joined(_table()["fragments"][found[1]]), "".join(pattern))


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _by_rules(path: str, text: str) -> Iterator[SkillFinding]:
    prose = _suffix(path) in _PROSE
    for number, line in enumerate(text.split("\n"), 1):
        small = line.lower()
        for rule in rules():
            if not any(hint in small for hint in rule.hints):
                continue
            found = next((m for piece in _pieces(line) if (m := _expression(rule.pattern).search(piece))), None)
            if found is None:
                continue
            start = line.find(found[0])
            mentioned = prose and _is_mention(line, start, start + len(found[0]))
            severity: Severity = "medium" if mentioned else rule.severity
            if rule.id == "download_run" and _KNOWN_INSTALLERS.search(line):
                severity = "low"
            elif rule.id == "login_key_added" and _PLACEHOLDER_KEY.search(line):
                severity = "medium"
            yield SkillFinding(rule.id, rule.category, severity, path, number, rule.why, _short(found[0]))


def _pieces(line: str) -> Iterator[str]:
    """Yield a long line in overlapping pieces, so that the time for it does not grow with its square."""
    for start in range(0, max(len(line), 1), _LINE - _OVERLAP):
        yield line[start : start + _LINE]


# ── Python as a syntax tree ──

MOST_CODE = 256 * 1024
"""Characters of one file that are parsed."""
_PYTHON_BLOCK = re.compile(r"^```[ \t]{0,4}(?:python3?|py)[^\n]{0,80}\n", re.MULTILINE)
_RUNS = {
    *("exec", "eval", "compile", "execfile", "__import__", "os.system", "os.popen", "runpy.run_path"),
    "code.InteractiveInterpreter",
}
_STARTS = {"run", "call", "Popen", "check_call", "check_output", "getoutput", "getstatusoutput"}
_DECODES = {
    *("b64decode", "b32decode", "b16decode", "b85decode", "a85decode", "standard_b64decode", "urlsafe_b64decode"),
    *("decodebytes", "unhexlify", "fromhex", "decompress", "codecs.decode", "marshal.loads"),
}
_FETCHES = {"requests.get", "requests.post", "urlopen", "httpx.get", "httpx.post", "urlretrieve", "recv"}
_SENDS = {
    *("requests.post", "requests.put", "requests.request", "urlopen", "httpx.post", "httpx.put", "sendall", "sendto")
}
_HIDDEN_NAMES = {
    *("system", "popen", "exec", "eval", "compile", "__import__", "import_module", "run", "call", "Popen"),
    *("check_output", "spawn", "socket", "b64decode", "__builtins__"),
}
_POWERS = {
    *("os", "sys", "subprocess", "builtins", "__builtins__", "importlib", "socket", "base64", "ctypes", "pty"),
    "shutil",
}
_SYNTAX: dict[str, tuple[str, Severity, str]] = {
    "code_decoded_and_run": ("obfuscation", "critical", "runs code that it decodes"),
    "code_fetched_and_run": ("execution", "critical", "runs code that it fetches"),
    "name_put_together": ("obfuscation", "critical", "hides the name that it imports or calls"),
    "name_looked_up": ("obfuscation", "high", "imports or calls by a name given as text"),
    "private_data_sent": ("exfiltration", "critical", "sends secrets of the machine over the network"),
    "shell_over_network": ("network", "critical", "connects a shell to the network"),
}


def _by_syntax(path: str, text: str) -> Iterator[SkillFinding]:
    for first, code in _python_in(path, text):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(code[:MOST_CODE])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # not Python; the other rules have read its lines
        names = _SyntaxScan(tree)
        for rule, node in names.findings():
            category, severity, why = _SYNTAX.get(rule, ("", "high", ""))
            line = first + getattr(node, "lineno", 1) - 1
            excerpt = _short((code.split("\n", line - first + 1)[line - first])[:_LINE]) if category else ""
            yield SkillFinding(rule, category, severity, path, line, why, excerpt)
        yield from _hidden_lines(path, first, tree, names)


def _python_in(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the Python of a file, each piece with the number of its first line."""
    if _suffix(path) == ".py" or text.startswith(("#!/usr/bin/env python", "#!/usr/bin/python")):
        yield 1, text
    elif _suffix(path) in _PROSE:
        number, at = 1, 0
        for opening in _PYTHON_BLOCK.finditer(text):
            number += text.count("\n", at, opening.end())
            at = opening.end()
            end = text.find("\n```", at - 1)
            yield number, textwrap.dedent(text[at : end if end >= 0 else len(text)])


def _hidden_lines(path: str, first: int, tree: ast.AST, names: _SyntaxScan) -> Iterator[SkillFinding]:
    """Yield what the rules find in text made of constants, and in commands, given as lists or to what runs them."""
    for node in ast.walk(tree):
        made = ""
        if not isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.List | ast.Tuple) and 1 < len(node.elts) <= 40:
            words = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            made = " ".join(words) if len(words) == len(node.elts) else ""
        elif isinstance(node, ast.Call) and names.starts(node):
            made = "\n".join(filter(None, map(_constant, node.args)))
        elif isinstance(node, ast.BinOp | ast.Call | ast.Subscript):
            made = _constant(node) or ""
        if made:
            for finding in _by_rules("x.py", made[:_LINE]):
                yield replace(finding, file=path, line=first + node.lineno - 1)


class _SyntaxScan:
    """Follow the names of a syntax tree: what each stands for, and if it holds decoded, fetched or private data."""

    def __init__(self, tree: ast.Module) -> None:
        self._nodes = list(ast.walk(tree))
        self._names: dict[str, str] = {}
        self._holds: dict[str, set[str]] = {}
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for one in node.names:
                    top = one.name.partition(".")[0]
                    self._names[one.asname or top] = one.name if one.asname else top
            elif isinstance(node, ast.ImportFrom):
                for one in node.names:
                    self._names[one.asname or one.name] = f"{node.module or ''}.{one.name}"
        assigned = [
            node for node in self._nodes if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value
        ]
        for node in (*assigned, *assigned[:2_000]):  # twice: a name may be used before it is assigned
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and node.value is not None:
                    called = self._called(node.value)
                    if called in _RUNS or called in _POWERS:
                        self._names[target.id] = called
                    self._holds.setdefault(target.id, set()).update(self._sources(node.value))
        self._calls = {self._called(node.func) for node in self._nodes if isinstance(node, ast.Call)}

    def findings(self) -> Iterator[tuple[str, ast.AST]]:
        for node in self._nodes:
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call | ast.Attribute):
                yield from self._looked_up(node, self._called(node.value), node.slice)
        if "socket.socket" in self._calls and ("os.dup2" in self._calls or "pty.spawn" in self._calls):
            calls = (node for node in self._nodes if isinstance(node, ast.Call))
            yield "shell_over_network", next(call for call in calls if self._called(call.func) == "socket.socket")

    def starts(self, node: ast.Call) -> bool:
        """Return whether a call runs a command."""
        called = self._called(node.func)
        return called in _RUNS or (called.startswith("subprocess.") and called.rpartition(".")[2] in _STARTS)

    def _call(self, node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
        called, last = self._called(node.func), self._called(node.func).rpartition(".")[2]
        given = [*node.args, *(word.value for word in node.keywords)]
        if called in ("__import__", "builtins.__import__", "importlib.import_module") and node.args:
            name = node.args[0]
            made = not isinstance(name, ast.Constant) and _constant(name) is not None
            if made or "decoded" in self._sources(name):
                yield "name_put_together", node
            elif isinstance(name, ast.Constant) and str(name.value).partition(".")[0] in _POWERS:
                yield "name_looked_up", node
        elif called == "getattr" and len(node.args) > 1:
            yield from self._looked_up(node, self._called(node.args[0]), node.args[1])
        held = set().union(*(self._sources(one) for one in given)) if given else set()
        runs = called.removeprefix("builtins.") in _RUNS - {"__import__"} or (
            last in _STARTS
            and called.startswith("subprocess.")
            and bool(node.args)
            and not isinstance(node.args[0], ast.List)
        )
        if runs and "decoded" in held:
            yield "code_decoded_and_run", node
        if runs and "fetched" in held:
            yield "code_fetched_and_run", node
        if (called in _SENDS or last in _SENDS) and held & {"private", "environment"}:
            yield "private_data_sent", node

    def _looked_up(self, node: ast.expr, owner: str, name: ast.expr) -> Iterator[tuple[str, ast.AST]]:
        """Yield what is taken from a module or a namespace by a name given as text."""
        namespace = owner in ("globals", "locals", "vars", "sys.modules") or owner.endswith("__dict__")
        if not namespace and owner.partition(".")[0] not in _POWERS | {"__import__"}:
            return
        plain = _constant(name)
        if not isinstance(name, ast.Constant) and (plain is not None or "decoded" in self._sources(name)):
            yield "name_put_together", node
        elif plain in _HIDDEN_NAMES:
            yield ("name_put_together" if owner.startswith("__builtins__") else "name_looked_up"), node

    def _called(self, node: ast.AST) -> str:
        """Return the dotted name of what is called or read, with aliases resolved."""
        parts: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Call):
                node = node.func
            elif isinstance(node, ast.Name):
                parts.append(self._names.get(node.id, node.id))
                return ".".join(reversed(parts[:20]))
            else:
                return ".".join(reversed(parts[:20]))

    def _sources(self, root: ast.AST) -> set[str]:
        """Return where the data of an expression comes from."""
        held: set[str] = set()
        for count, node in enumerate(ast.walk(root)):
            if count > 400:
                break
            if isinstance(node, ast.Name):
                held |= self._holds.get(node.id, set())
            elif isinstance(node, ast.Call):
                called = self._called(node.func)
                if called in _DECODES or called.rpartition(".")[2] in _DECODES:
                    held.add("decoded")
                elif called in _FETCHES or called.rpartition(".")[2] in ("urlopen", "recv"):
                    held.add("fetched")
                elif called in ("dict", "json.dumps", "str", "repr") and any(
                    self._called(one) == "os.environ" for one in node.args
                ):
                    held.add("environment")
            elif isinstance(node, ast.Constant) and _is_private_path(node.value):
                held.add("private")
        return held


def _is_private_path(value: object) -> bool:
    return isinstance(value, str) and re.search(_joined("<PRIVATE_FILE>"), value[:_LINE]) is not None


def _constant(node: ast.AST, depth: int = 0) -> str | None:
    """Return the text that an expression of constants makes, decoded as it says; None for any other expression."""
    if depth > 20:
        return None
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _constant(node.left, depth + 1), _constant(node.right, depth + 1)
        return left + right if left is not None and right is not None else None
    if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "::-1":
        text = _constant(node.value, depth + 1)
        return text[::-1] if text is not None else None
    if isinstance(node, ast.Call):
        return _constant_call(node, depth)
    return None


def _constant_call(node: ast.Call, depth: int) -> str | None:
    name, owner = getattr(node.func, "attr", getattr(node.func, "id", "")), None
    if isinstance(node.func, ast.Attribute):
        owner = _constant(node.func.value, depth + 1)
    if name == "join" and owner is not None and len(node.args) == 1 and isinstance(node.args[0], ast.List | ast.Tuple):
        pieces = [_constant(one, depth + 1) for one in node.args[0].elts[:400]]
        return owner.join(piece for piece in pieces if piece is not None) if None not in pieces else None
    if name == "chr" and len(node.args) == 1:
        number = getattr(node.args[0], "value", None)
        return chr(number) if isinstance(number, int) and 0 < number < 0x110000 else None
    if name in ("decode", "strip", "lower") and owner is not None:
        return owner
    given = _constant(node.args[0], depth + 1) if node.args else None
    if given is None or len(given) > _LINE:
        return None
    try:
        if name in ("b64decode", "urlsafe_b64decode", "standard_b64decode"):
            altered = b"-_" if name[0] == "u" else None
            return base64.b64decode(given + "=" * (-len(given) % 4), altered).decode("latin-1")
        if name in ("fromhex", "unhexlify"):
            return bytes.fromhex(given).decode("latin-1")
    except ValueError:
        return None
    return None


# ── what the scanner of memory finds ──


def _by_scan(path: str, text: str) -> Iterator[SkillFinding]:
    """Yield what the scanner of memory finds: orders to the model, hidden characters, credentials."""
    prose = _suffix(path) in _PROSE
    ends = [at for at, character in enumerate(text) if character == "\n"]
    for finding in scan(text):
        start, end = finding.span
        mentioned = finding.rule not in _CHARACTERS and prose and _is_mention(text, start, end)
        severity: Severity = "medium" if mentioned else finding.severity
        line = bisect_left(ends, start) + 1
        yield SkillFinding(finding.rule, "injection", severity, path, line, finding.why, _short(text[start:end]))


def _is_mention(text: str, start: int, end: int) -> bool:
    """Return whether prose only mentions it: warns of it just before, quotes nothing else, or searches for it.

    Text in backticks is not a quotation: it is meant to be run.
    """
    before = text[max(0, start - 160) : start]
    line = before[before.rfind("\n") + 1 :]
    quoted = before[-1:] in _QUOTES and text[end : end + 3].lstrip(".,;!?…")[:1] in _QUOTES
    quoted = quoted and not _RUN_NEXT.search(before[:-1])
    return bool(quoted or _WARNED.search(line) or _SOUGHT.search(line))


# ── the files as a whole ──


def _by_structure(files: Sequence[SkillFile]) -> Iterator[SkillFinding]:
    def found(rule: str, severity: Severity, file: str, why: str) -> SkillFinding:
        return SkillFinding(rule, "structure", severity, file, 0, why)

    for file in files:
        suffix = _suffix(file.path)
        if file.link == "?":
            yield found("broken_link", "medium", file.path, "a link that leads nowhere")
        elif file.link:
            yield found("link_leads_out", "critical", file.path, f"a link that leads out of the skill, to {file.link}")
        elif file.text is None and suffix in _PROGRAMS:
            yield found("program", "critical", file.path, "a program in binary form")
        elif file.text is None and not file.path.startswith("assets/"):
            yield found("not_text", "medium", file.path, "not text, and not under assets/")
        if file.text is not None and len(file.text) > MOST_TOTAL:
            yield found("not_scanned", "high", file.path, f"only the first {MOST_TOTAL:,} characters were scanned")
        if file.size > MOST_FILE:
            yield found("large_file", "medium", file.path, f"{file.size:,} bytes, more than {MOST_FILE:,}")
        if file.executable and suffix not in _SCRIPTS:
            yield found("executable", "medium", file.path, "marked as executable, but not a script")
    if len(files) > MOST_FILES:
        yield found("many_files", "medium", "", f"{len(files)} files, more than {MOST_FILES}")
    total = sum(file.size for file in files)
    if total > MOST_TOTAL:
        yield found("large_skill", "high", "", f"{total:,} bytes together, more than {MOST_TOTAL:,}")


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    return f".{name.rpartition('.')[2].lower()}" if "." in name else ""


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _EXCERPT else plain[:_EXCERPT] + "…"
