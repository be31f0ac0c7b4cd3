#!/bin/sh
# Installs the command `paddlecloud` for the current user, into ~/bin/paddlecloud:
#
#   conf/client.conf   configuration, kept when it is there already
#   paddlecloud        the command; paddlecloud.bat is the same for Windows shells
#   venv/              a private Python environment, so that no other program is disturbed
#
# and puts that directory on PATH in ~/.bashrc and ~/.zshrc. Running it again upgrades in place.
set -eu

usage() {
    cat <<'USAGE'
usage: scripts/install.sh [--client-only] [PACKAGE]
       scripts/install.sh --uninstall

  PACKAGE        a wheel, a source archive or a directory; default: this checkout
  --client-only  leave out the embedded server (needs an [openapi] host in client.conf)
  --uninstall    remove the command and its environment; client.conf is kept
USAGE
}

main() {
    : "${HOME:?install.sh: HOME is not set}"
    top=$(cd "$(dirname "$0")/.." && pwd)
    target=$HOME/bin/paddlecloud
    package=
    extra='[server]'
    action=install
    while [ $# -gt 0 ]; do
        case $1 in
            --client-only) extra= ;;
            --uninstall) action=uninstall ;;
            -h | --help) usage && exit 0 ;;
            -*) usage >&2 && fail 2 "unknown option $1" ;;
            *) package=$1 ;;
        esac
        shift
    done
    "$action"
}

install() {
    package=$(full_path "${package:-$top}")
    python=$(sh "$top/scripts/find-python.sh")
    umask 077
    mkdir -p "$target/conf"
    install_package
    write_configuration
    write_commands
    for file in "$HOME/.bashrc" "$HOME/.zshrc"; do add_to_path "$file"; done
    echo "installed: $target/paddlecloud"
    echo "open a new terminal, or run: export PATH=\"$target:\$PATH\""
}

uninstall() {
    [ ! -x "$target/paddlecloud" ] || "$target/paddlecloud" server stop >/dev/null 2>&1 || true
    for file in "$HOME/.bashrc" "$HOME/.zshrc"; do remove_from_path "$file"; done
    rm -rf "$target/venv" "$target/paddlecloud" "$target/paddlecloud.bat"
    if [ -e "$target/conf/client.conf" ]; then
        echo "removed; your configuration stays in $target/conf/client.conf"
    else
        rm -rf "$target/conf"
        rmdir "$target" 2>/dev/null || true
        echo "removed"
    fi
}

# The environment is made beside the old one and moved into place when it is whole, so a failed
# upgrade leaves the command that was there. The locked versions go first; the package then finds
# what it needs in place. pip is not needed afterwards, and setuptools would run at every start.
install_package() {
    fresh=$target/venv.new
    rm -rf "$fresh"
    "$python" -m venv "$fresh"
    [ -z "$extra" ] || pip install --require-hashes -r "$top/requirements.lock"
    pip install "paddlecloud$extra @ $(file_url "$package")"
    pip uninstall --quiet --yes setuptools pip
    drop_scripts_that_name_the_old_place
    touch "$fresh/paddlecloud-only" # no job gets this environment
    rm -rf "$target/venv.old"
    [ ! -e "$target/venv" ] || mv "$target/venv" "$target/venv.old"
    mv "$fresh" "$target/venv"
    rm -rf "$target/venv.old"
}

pip() {
    "$fresh/$(scripts_of "$fresh")/python" -I -m pip --quiet --disable-pip-version-check "$@"
}

scripts_of() {
    if [ -d "$1/Scripts" ]; then echo Scripts; else echo bin; fi
}

drop_scripts_that_name_the_old_place() {
    for script in "$fresh/$(scripts_of "$fresh")"/*; do
        ! grep -qF "$fresh" "$script" 2>/dev/null || rm -f "$script"
    done
}

# The file that users of the 2020 client know. It holds keys: nobody else may read it.
write_configuration() {
    conf=$target/conf/client.conf
    [ ! -e "$conf" ] || return 0
    "$target/venv/$(scripts_of "$target/venv")/python" -I -c \
        'from paddlecloud.client.config.template import documented_file; print(end=documented_file())' \
        >"$conf"
    chmod 600 "$conf"
}

# -P keeps a training directory with its own json.py from breaking the command.
write_commands() {
    cat >"$target/paddlecloud" <<COMMAND
#!/bin/sh
self=\$0
[ ! -L "\$self" ] || self=\$(readlink -f "\$self")
exec "\${self%/*}/venv/$(scripts_of "$target/venv")/python" -P -s -c \\
    'import sys; from paddlecloud.cli.main import main; sys.argv[0] = "paddlecloud"; sys.exit(main())' \\
    "\$@"
COMMAND
    printf '@echo off\r\n"%%~dp0venv\\Scripts\\python.exe" -P -s -m paddlecloud %%*\r\n' \
        >"$target/paddlecloud.bat"
    chmod 755 "$target/paddlecloud" "$target/paddlecloud.bat"
}

begin='# >>> paddlecloud >>>'
end='# <<< paddlecloud <<<'

# .bashrc always, as the documents say; .zshrc for people who use zsh.
add_to_path() {
    case "$1:${SHELL:-}" in
        *.bashrc:* | *.zshrc:*/zsh) ;;
        *) [ -e "$1" ] || return 0 ;;
    esac
    ! grep -qxF "$begin" "$1" 2>/dev/null || return 0
    rewrite "$1" with_our_lines
}

remove_from_path() {
    # Half of the pair is not ours to cut at: everything after it would go.
    grep -qxF "$begin" "$1" 2>/dev/null && grep -qxF "$end" "$1" || return 0
    rewrite "$1" without_our_lines
}

with_our_lines() {
    [ ! -e "$1" ] || cat "$1" || return 1
    [ ! -s "$1" ] || [ -z "$(tail -c 1 "$1")" ] || echo || return 1
    printf '%s\nexport PATH="$HOME/bin/paddlecloud:$PATH"\n%s\n' "$begin" "$end"
}

without_our_lines() {
    awk -v b="$begin" -v e="$end" '$0 == b {skip = 1} !skip {print} $0 == e {skip = 0}' "$1"
}

# rewrite FILE COMMAND: give FILE the output of `COMMAND FILE`. It is written beside the file and
# moved into place when it is whole, so a full disk costs nobody their settings; the copy made first
# keeps owner and mode, and a link goes on pointing to the real file.
rewrite() {
    real=$1
    [ ! -L "$real" ] || real=$(readlink -f "$real")
    aside=$real.paddlecloud-new
    rm -f "$aside"
    if { [ ! -e "$real" ] || cp -p "$real" "$aside"; } && "$2" "$real" >"$aside" &&
        mv -f "$aside" "$real"; then
        return 0
    fi
    rm -f "$aside"
    fail 1 "$1 cannot be written and is left as it was; make room and run this again"
}

full_path() {
    [ -e "$1" ] || fail 1 "$1 does not exist; give a wheel, a source archive or a directory"
    printf '%s/%s\n' "$(cd "$(dirname "$1")" && pwd)" "$(basename "$1")"
}

file_url() {
    "$python" -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).resolve().as_uri())' "$1"
}

fail() {
    echo "install.sh: $2" >&2
    exit "$1"
}

main "$@"
