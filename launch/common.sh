# shellcheck shell=bash
# Set-up that quickstart.sh and test.sh share. Sourced, never run.
#
#   set_up EXTRAS     makes .venv, installs the package with EXTRAS ("data" or "data,test") and
#                     the sandbox; what is already there is left alone. Exits 2, with one line
#                     that says what to type, where it cannot go on.
#
# Afterwards $PYTHON is the interpreter of .venv. Needs bash; root or sudo only where system
# packages are missing.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"
LOG="$(mktemp)"
TICKER=""
trap 'stop_ticker; rm -f "$LOG"' EXIT

give_up() {
    stop_ticker
    printf '%s\n' "$1" >&2
    exit 2
}

stop_ticker() {
    if [ -n "$TICKER" ]; then
        kill "$TICKER" 2>/dev/null
        wait "$TICKER" 2>/dev/null
        TICKER=""
    fi
    return 0
}

# quietly WORDS COMMAND...: runs COMMAND with its output in $LOG; a terminal sees the seconds pass.
# COMMAND stays in the foreground, so that Ctrl-C reaches it.
quietly() {
    local words="$1" began=$SECONDS code=0
    shift
    if [ -t 2 ]; then
        while :; do
            printf '\r%s: %d s' "$words" $((SECONDS - began)) >&2
            sleep 1
        done &
        TICKER=$!
    fi
    "$@" >"$LOG" 2>&1 || code=$?
    stop_ticker
    [ -t 2 ] && printf '\r' >&2
    printf '%s: %d s\n' "$words" $((SECONDS - began)) >&2
    return $code
}

# python_works COMMAND: whether COMMAND runs and is new enough.
python_works() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in python3.12 python3.11 python3.13 python3; do
        if python_works "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    give_up "Python 3.11 or newer is needed and was not found. Type: apt-get install python3 python3-venv"
}

# install_packages NAME...: Debian packages, or the line to type.
install_packages() {
    local words="installing $*" prefix=()
    if [ "$(id -u)" != 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            give_up "Not installed here: $*. Type: sudo apt-get install $*"
        fi
        prefix=(sudo -n)
    fi
    if ! command -v apt-get >/dev/null; then
        give_up "Not installed here: $*. There is no apt-get: install them with your package manager."
    fi
    quietly "reading the package lists" "${prefix[@]}" apt-get update -qq || true
    quietly "$words" "${prefix[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" ||
        give_up "apt-get could not install $*: $(tail -n 1 "$LOG")"
}

can_make_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

make_venv() {
    if python_works "$PYTHON" && "$PYTHON" -m pip --version >/dev/null 2>&1; then
        return
    fi
    local base
    base="$(find_python)" || exit 2
    can_make_venv "$base" || install_packages python3-venv
    can_make_venv "$base" ||
        give_up "$base cannot make a virtual environment. Type: apt-get install python3-venv"
    quietly "making .venv with $base" "$base" -m venv --clear "$VENV" ||
        give_up "could not make $VENV: $(tail -n 1 "$LOG")"
}

# install_package EXTRAS: a stamp for each extra says that it is installed for this setup.py, this
# Python and this place of the clone.
install_package() {
    local key extra missing=""
    key="$("$PYTHON" - "$ROOT" <<'END'
import hashlib, pathlib, sys
setup = pathlib.Path(sys.argv[1], "setup.py").read_bytes()
print(hashlib.sha256(setup + repr((sys.version, sys.argv[1])).encode()).hexdigest())
END
    )"
    for extra in ${1//,/ }; do
        [ "$(cat "$VENV/stamp-$extra" 2>/dev/null)" = "$key" ] || missing="$extra"
    done
    [ -n "$missing" ] || return 0
    rm -f "$VENV"/stamp-*
    quietly "installing composer2_jax[$1] and what it needs" \
        "$PYTHON" -m pip install --disable-pip-version-check -e "${ROOT}[$1]" ||
        give_up "pip could not install composer2_jax[$1]: $(grep -i error "$LOG" | tail -n 1)"
    for extra in ${1//,/ }; do
        printf '%s\n' "$key" >"$VENV/stamp-$extra"
    done
}

make_sandbox() {
    local wanted=() problem
    command -v bwrap >/dev/null || wanted+=(bubblewrap)
    command -v git >/dev/null || wanted+=(git)
    command -v setpriv >/dev/null && command -v prlimit >/dev/null || wanted+=(util-linux)
    # The sandbox shows its processes /usr and nothing else of this machine.
    [ -x /usr/bin/python3 ] || wanted+=(python3)
    [ ${#wanted[@]} = 0 ] || install_packages "${wanted[@]}"

    problem="$("$PYTHON" -P - 2>&1 <<'END'
import sys
from composer2_jax.envs import sandbox
from composer2_jax.errors import UserError
try:
    sandbox.check()
except UserError as error:
    sys.exit(str(error))
END
    )" || give_up "The sandbox does not work: ${problem##*$'\n'}"
}

set_up() {
    make_venv
    install_package "$1"
    make_sandbox
}
