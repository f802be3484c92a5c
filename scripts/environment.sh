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

# ensure_environment [EXTRA]: without an extra, an environment that has one will do as well; dev has local in it.
ensure_environment() {
    extra=${1-}
    require_venv || exit 1
    now=$(fingerprint)
    if [ "$extra" = local ]; then
        set -- .venv/installed-local .venv/installed-dev
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

# The model that finds by meaning: fetched once, hash-checked, kept in one folder for all homes (herma models path).
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

find_browser() {
    command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1
}
