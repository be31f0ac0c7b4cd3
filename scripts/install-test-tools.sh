#!/usr/bin/env bash
# Installs what some tests need besides .venv: PostgreSQL, zsh and fish with apt-get (root only), and
# into the user's cache Prometheus, a Debian package, and two wheels: uv, and the RecordIO library of
# 2017. Prints what it cannot install; tests that need it are skipped then.
set -euo pipefail
cd "$(dirname "$0")/.."

main() {
    local missing=()
    .venv/bin/python -c 'from scripts import postgres; postgres.find_programs()' 2>/dev/null ||
        missing+=(postgresql)
    command -v zsh >/dev/null || missing+=(zsh)
    command -v fish >/dev/null || missing+=(fish)
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}" ||
        echo "install-test-tools.sh: not installed: ${missing[*]}" >&2
    install_prometheus || echo "install-test-tools.sh: not installed: prometheus" >&2
    install_uv || echo "install-test-tools.sh: not installed: uv 0.13.8" >&2
    install_recordio || echo "install-test-tools.sh: not installed: recordio 0.1.7" >&2
}

install_packages() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    local install=(apt-get install -y -q --no-install-recommends "$@")
    export DEBIAN_FRONTEND=noninteractive
    "${install[@]}" || { apt-get update -q && "${install[@]}"; }
}

# Only unpacked: a test needs the program, and not a service that runs.
install_prometheus() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/paddlecloud-dev unpacked
    command -v prometheus >/dev/null && return 0
    [ ! -e "$cache/prometheus/usr/bin/prometheus" ] || return 0
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    unpacked=$(mktemp -d)
    (cd "$unpacked" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; }) &&
        dpkg-deb -x "$unpacked"/prometheus_*.deb "$unpacked/root" &&
        mkdir -p "$cache" &&
        rm -rf "$cache/prometheus" &&
        mv "$unpacked/root" "$cache/prometheus"
    local code=$?
    rm -rf "$unpacked"
    return $code
}

install_uv() {
    local target=${XDG_CACHE_HOME:-$HOME/.cache}/paddlecloud-dev/uv-0.13.8 wheels
    command -v uv >/dev/null && return 0
    [ ! -e "$target/uv" ] || return 0
    wheels=$(mktemp -d)
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest "$wheels" \
        --only-binary=:all: uv==0.13.8 &&
        .venv/bin/python -m zipfile -e "$wheels"/uv-*.whl "$wheels" &&
        mkdir -p "$target" &&
        install -m 755 "$(find "$wheels" -path '*/scripts/uv')" "$target/uv"
    local code=$?
    rm -rf "$wheels"
    return $code
}

# The wheel is for Python 3.6; its library loads under any.
install_recordio() {
    local target=${XDG_CACHE_HOME:-$HOME/.cache}/paddlecloud-dev/recordio-0.1.7 wheels
    [ ! -e "$target/librecordio.so" ] || return 0
    wheels=$(mktemp -d)
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest "$wheels" \
        --only-binary=:all: --python-version 3.6 --platform manylinux1_x86_64 recordio==0.1.7 &&
        .venv/bin/python -m zipfile -e "$wheels"/recordio-*.whl "$wheels" &&
        mkdir -p "$target" &&
        mv "$(find "$wheels" -name librecordio.so)" "$target/"
    local code=$?
    rm -rf "$wheels"
    return $code
}

main
