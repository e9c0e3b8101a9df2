#!/usr/bin/env bash
# Makes .venv and sees to Java. Does nothing, and quickly, where both are in place.
#
# With the argument "run" it leaves out what only checks and tests need.
#
# PYTHON     the interpreter to make .venv from (python3 unless set)
# JAVA_HOME  the Java to use (the one on PATH unless set)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." >/dev/null

PYTHON=${PYTHON:-python3}
MIN_JAVA=17
STAMP=.venv/.stamp
FOR=${1:-dev}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# --- apt ---

is_root() { [[ $(id -u) == 0 ]]; }

can_apt() {
    command -v apt-get >/dev/null || return 1
    is_root || sudo -n true 2>/dev/null
}

apt() {
    local apt_get=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    is_root || apt_get=(sudo -n "${apt_get[@]}")
    "${apt_get[@]}" "$@" >/dev/null
}

# --- Java ---

# Prints the major version of the Java that Spark would start, or nothing.
java_major() {
    local java=java text
    [[ -z ${JAVA_HOME:-} ]] || java=$JAVA_HOME/bin/java
    text=$("$java" -version 2>&1) || return 0
    # "17.0.15" is 17, "1.8.0_402" is 8.
    if [[ $text =~ version\ \"(1\.)?([0-9]+) ]]; then
        echo "${BASH_REMATCH[2]}"
    fi
}

has_java() {
    local major
    major=$(java_major)
    [[ -n $major ]] && ((major >= MIN_JAVA))
}

install_java() {
    local package
    apt update || say "apt-get update failed; going on with the lists at hand"
    # Newer releases of Debian no longer carry 17.
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        say "installing $package"
        if apt install -y --no-install-recommends "$package"; then
            return
        fi
    done
    die "apt-get could not install Java; install Java $MIN_JAVA or newer by hand"
}

ensure_java() {
    if has_java; then return; fi
    # Spark starts what JAVA_HOME names, whatever else is installed.
    [[ -z ${JAVA_HOME:-} ]] ||
        die "no Java $MIN_JAVA or newer in JAVA_HOME=$JAVA_HOME; change it or unset it"
    can_apt ||
        die "Java $MIN_JAVA or newer is needed; install a JRE (Debian: openjdk-17-jre-headless)"
    install_java
    hash -r
    has_java || die "Java $MIN_JAVA is installed but not first on PATH; set JAVA_HOME to it"
}

# --- Python ---

# Prints the version of PYTHON; fails where it is missing or too old.
python_version() {
    command -v "$PYTHON" >/dev/null ||
        die "$PYTHON not found; install Python 3.11 or newer, or set PYTHON"
    local version
    version=$("$PYTHON" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])') ||
        die "$PYTHON does not start; set PYTHON to Python 3.11 or newer"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "$PYTHON is Python $version; 3.11 or newer is needed (set PYTHON)"
    echo "$version"
}

has_venv() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }

ensure_venv_module() {
    if has_venv; then return; fi
    if can_apt; then
        say "installing python3-venv"
        apt update || say "apt-get update failed; going on with the lists at hand"
        apt install -y python3-venv || true
    fi
    has_venv || die "$PYTHON lacks the venv module; install it (Debian: python3-venv)"
}

# Line 1: what .venv is made of; a venv breaks when it is moved. Line 2: what went into it.
# Line 3: what it is for; what is there for "dev" will do for "run".
fingerprint() {
    local version
    version=$(python_version) || exit 1
    echo "python $version in $PWD"
    cat pyproject.toml constraints.txt | cksum
    echo "$1"
}

make_venv() {
    ensure_venv_module
    say "making .venv"
    "$PYTHON" -m venv --clear .venv
}

ensure_packages() {
    local wanted found= what=.
    wanted=$(fingerprint "$FOR") || exit 1
    if .venv/bin/python -c '' 2>/dev/null && [[ -f $STAMP ]]; then
        found=$(<"$STAMP")
    fi
    if [[ $found == "$wanted" || $found == "$(fingerprint dev)" ]]; then return; fi
    [[ $FOR == run ]] || what=".[$FOR]"
    # A venv without a stamp was cut short: make it again.
    [[ ${found%%$'\n'*} == "${wanted%%$'\n'*}" ]] || make_venv
    rm -f "$STAMP"
    say "installing packages (half a minute or so the first time)"
    .venv/bin/python -m pip install -qq --disable-pip-version-check \
        -e "$what" -c constraints.txt || die "pip could not install the packages; see above"
    printf '%s\n' "$wanted" >"$STAMP"
    say "done"
}

ensure_java
ensure_packages
