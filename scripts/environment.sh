# A virtual environment in .venv with this package in it, made once and kept as long as it fits.
# Sourced by ./run, which has changed to the checkout's folder.

find_python() {
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "run: Python 3.11 or newer is needed, and was not found" >&2
    echo "  → install it (apt-get install python3, brew install python), or name it: PYTHON=/path/to/python ./run" >&2
    return 1
}

# Debian and Ubuntu ship Python without the part that makes environments.
require_ensurepip() {
    if "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        return
    fi
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "Installing $package" >&2
        apt-get update -qq >/dev/null || true # an outdated list may still do
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$package" >/dev/null || true
    fi
    if ! "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "run: this Python cannot make virtual environments" >&2
        echo "  → install the package for it: sudo apt-get install $package" >&2
        return 1
    fi
}

require_venv() {
    if .venv/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        return
    fi
    python=$(find_python) || return 1
    require_ensurepip "$python" || return 1
    echo "Making .venv with $("$python" -V)" >&2
    "$python" -m venv --clear .venv
}

# What an installation was made for: this project file, this folder, this Python.
fingerprint() {
    .venv/bin/python - <<'PYTHON'
import hashlib, pathlib, sys
parts = (pathlib.Path("pyproject.toml").read_bytes(), str(pathlib.Path.cwd()).encode(), sys.version.encode())
print(hashlib.sha256(b"\0".join(parts)).hexdigest())
PYTHON
}

# ensure_environment [EXTRA]: without an extra, an environment that has one will do as well; dev contains all.
ensure_environment() {
    extra=${1-}
    require_venv || exit 1
    now=$(fingerprint)
    if [ "$extra" = all ]; then
        set -- .venv/installed-all .venv/installed-dev
    elif [ -n "$extra" ]; then
        set -- ".venv/installed-$extra"
    else
        set -- .venv/installed-*
    fi
    for stamp in "$@"; do
        if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$now" ]; then
            return
        fi
    done
    echo "Installing herma${extra:+ with its $extra extra} and what it needs" >&2
    rm -f .venv/installed-* # an interrupted installation must not look like a finished one
    .venv/bin/python -m pip install -qq --disable-pip-version-check --editable ".${extra:+[$extra]}" || {
        echo "run: the installation failed; what pip says is above" >&2
        exit 1
    }
    echo "$now" >".venv/installed-$extra"
}

# The packages of agent frameworks, in an environment of their own: they need other versions of what herma[chat] needs.
ensure_frameworks() {
    stamp=.venv-frameworks/installed
    now=$(fingerprint)
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$now" ]; then
        return
    fi
    echo "Installing agent frameworks, for the tests of herma.integrations" >&2
    rm -f "$stamp"
    .venv/bin/python -m venv --clear .venv-frameworks || return 1
    .venv-frameworks/bin/python -m pip install -qq --disable-pip-version-check --editable ".[frameworks]" || return 1
    echo "$now" >"$stamp"
}

# The model that finds by meaning: fetched once, hash-checked, kept in one folder for all homes (herma models list).
# Quick when it is there. Says why when it cannot be had, and leaves it to the caller what that means.
ensure_model() {
    .venv/bin/herma models install e5-small >/dev/null
}

# A browser for the tests of the dashboard. Only CI gets one that was not there: it is a few hundred megabytes.
ensure_browser() {
    if find_browser; then
        return
    fi
    if [ -n "${CI-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "Installing chromium" >&2
        apt-get update -qq >/dev/null || true # an outdated list may still do
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null || true
    fi
    find_browser
}

# Real agents and the inspector of MCP, from npm: 1.3 GB, so only CI gets them by itself.
CLIENTS="@anthropic-ai/claude-code@2 @openai/codex@0.169 @google/gemini-cli@0.61 opencode-ai@1 @qwen-code/qwen-code@0.15 @modelcontextprotocol/inspector@0.15"
ensure_clients() {
    if [ ! -d .venv/clients/node_modules ] && [ -n "${CI-}" ]; then
        echo "Installing agents from npm, for the tests of herma connect" >&2
        # shellcheck disable=SC2086
        npm install --silent --prefix .venv/clients $CLIENTS >/dev/null
    fi
    [ -d .venv/clients/node_modules ]
}

find_browser() {
    command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1
}

# Make `herma` callable from anywhere: a link in ~/.local/bin, unless another program has that name.
link_program() {
    program=$PWD/.venv/bin/herma
    link=$HOME/.local/bin/herma
    if [ -e "$link" ] || [ -L "$link" ]; then
        if [ "$(readlink "$link" 2>/dev/null)" != "$program" ]; then
            echo "run: $link belongs to another installation and was not changed. This one is $program" >&2
            return
        fi
    elif ! { mkdir -p "$HOME/.local/bin" && ln -s "$program" "$link"; } 2>/dev/null; then
        echo "run: $link could not be made. Call $program" >&2
        return
    fi
    case ":$PATH:" in
    *":$HOME/.local/bin:"*) echo "herma is installed: type herma --help" ;;
    *) echo "herma is installed as $link; to call it by name, add this to your shell's profile:
  export PATH=\"\$HOME/.local/bin:\$PATH\"" ;;
    esac
}
