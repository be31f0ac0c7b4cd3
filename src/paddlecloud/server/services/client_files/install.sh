#!/bin/sh
# Installs the command `paddlecloud` for the current user, into ~/bin/paddlecloud:
#
#   conf/client.conf   configuration, kept when it is there already
#   paddlecloud        the command; paddlecloud.bat is the same for Windows shells
#   venv/ or lib/      a private Python environment, or the client alone, as a server gives it out
#
# and puts that directory on PATH in ~/.bashrc and ~/.zshrc. Running it again upgrades in place.
#
#   sh scripts/install.sh                                   from a checkout
#   curl -fsSL https://cloud.example/install.sh | sh        the client of a server
set -eu

# The address of the server that gives out this script; empty in a checkout.
server=

usage() {
    cat <<'USAGE'
usage: scripts/install.sh [--client-only] [PACKAGE]
       scripts/install.sh --uninstall
       curl -fsSL SERVER/install.sh | sh [-s -- --uninstall]

  PACKAGE        a wheel, a source archive or a directory; default: this checkout
  --client-only  leave out the embedded server (needs an [openapi] host in client.conf)
  --uninstall    remove the command and its environment; client.conf is kept

environment:
  PYTHON               the Python to use, 3.11 or newer
  PADDLECLOUD_CA_FILE  the issuer of the server's certificate, if this machine does not know it
USAGE
}

main() {
    : "${HOME:?install.sh: HOME is not set}"
    [ -n "$server" ] || top=$(cd "$(dirname "$0")/.." && pwd)
    target=$HOME/bin/paddlecloud
    package=
    extra='[server]'
    action=install
    while [ $# -gt 0 ]; do
        case $1 in
            --client-only) extra= ;; # of a server it is the client in any case
            --uninstall) action=uninstall ;;
            -h | --help) usage && exit 0 ;;
            -*) usage >&2 && fail 2 "unknown option $1" ;;
            *)
                [ -z "$server" ] || fail 2 "$1: a server gives out its own client; name no package"
                package=$1
                ;;
        esac
        shift
    done
    "$action"
}

install() {
    umask 077
    if [ -n "$server" ]; then
        find_python
        fetch_client
        mkdir -p "$target/conf"
        install_client
    else
        package=$(full_path "${package:-$top}")
        python=$(sh "$top/scripts/find-python.sh")
        mkdir -p "$target/conf"
        install_package
        write_configuration
        write_commands
        rm -rf "$target/lib"
    fi
    for file in "$HOME/.bashrc" "$HOME/.zshrc"; do add_to_path "$file"; done
    echo "installed: $target/paddlecloud"
    echo "open a new terminal, or run: export PATH=\"$target:\$PATH\""
    [ -z "$server" ] || echo "then get a token: paddlecloud gen_token --email=your_name@example.com"
}

uninstall() {
    [ ! -x "$target/paddlecloud" ] || "$target/paddlecloud" server stop >/dev/null 2>&1 || true
    for file in "$HOME/.bashrc" "$HOME/.zshrc"; do remove_from_path "$file"; done
    rm -rf "$target/venv" "$target/lib" "$target/paddlecloud" "$target/paddlecloud.bat"
    if [ -e "$target/conf/client.conf" ]; then
        echo "removed; your configuration stays in $target/conf/client.conf"
    else
        rm -rf "$target/conf"
        rmdir "$target" 2>/dev/null || true
        echo "removed"
    fi
}

# The interpreter itself, not the shim of a version manager, nor an environment that may be removed.
find_python() {
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        python=$("$name" -I -c '
import sys, ssl
sys.version_info >= (3, 11) or sys.exit(1)
print(getattr(sys, "_base_executable", "") or sys.executable)' 2>/dev/null) && return 0
    done
    fail 1 "the client needs Python 3.11 or newer; install it, or name one: PYTHON=/path/to/python3"
}

# Downloads the archive into $unpacked and checks it against its checksum. Python does it, because it
# is there on every machine that can run the client.
fetch_client() {
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    "$python" -I - "$server" "$unpacked" <<'FETCH' || exit 1
import hashlib, io, os, ssl, sys, tarfile, urllib.request

server, target = sys.argv[1:]
name = "paddlecloud_stable.tar.gz"


def fetch(path):
    ca_file = os.environ.get("PADDLECLOUD_CA_FILE") or None
    context = ssl.create_default_context(cafile=ca_file) if server.startswith("https:") else None
    with urllib.request.urlopen(server + "/" + path, context=context, timeout=60) as answer:
        return answer.read()


try:
    data = fetch(name)
    wanted = fetch(name + ".sha256").decode().split()[0]
except OSError as error:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        sys.exit(
            "install.sh: the certificate of %s is not trusted (%s); set PADDLECLOUD_CA_FILE to the "
            "certificate of its issuer" % (server, reason.verify_message)
        )
    sys.exit("install.sh: %s/%s cannot be fetched: %s" % (server, name, reason))
if hashlib.sha256(data).hexdigest() != wanted:
    sys.exit("install.sh: %s arrived damaged: its sha256 is not %s; try again" % (name, wanted))
with tarfile.open(fileobj=io.BytesIO(data)) as archive:
    archive.extractall(target, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
FETCH
}

# Puts the files of the archive in place, the library in one step; client.conf stays as it is.
install_client() {
    new=$unpacked/paddlecloud
    sed "s|^python=.*|python='$(printf %s "$python" | sed "s/[&|\\]/\\\\&/g")'|" \
        "$new/paddlecloud" >"$new/paddlecloud.new"
    chmod 755 "$new/paddlecloud.new"
    rm -rf "$target/lib.new" "$target/lib.old"
    cp -R "$new/lib" "$target/lib.new"
    [ ! -e "$target/lib" ] || mv "$target/lib" "$target/lib.old"
    mv "$target/lib.new" "$target/lib"
    mv "$new/paddlecloud.new" "$target/paddlecloud"
    mv "$new/paddlecloud.bat" "$target/paddlecloud.bat"
    rm -rf "$target/lib.old" "$target/venv"
    conf=$target/conf/client.conf
    [ ! -e "$conf" ] || return 0
    ca_file=
    if [ -n "${PADDLECLOUD_CA_FILE:-}" ]; then
        ca_file=ca.pem
        cp "$PADDLECLOUD_CA_FILE" "$target/conf/$ca_file"
    fi
    "$python" -I -c '
import sys
sys.path.insert(0, sys.argv[1])
from paddlecloud.client.config.template import file_for_server
print(end=file_for_server(*sys.argv[2:]))' "$target/lib" "$server" "$ca_file" >"$conf"
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

# The file that users of the 2020 client know. It holds keys, so its mode is 0600.
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
# moved into place when it is whole, so a full disk does not lose settings; the copy made first
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
