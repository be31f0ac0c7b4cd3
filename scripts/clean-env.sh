#!/bin/sh
# Runs a command in a clean environment, so that the caller's shell decides nothing:
#   scripts/clean-env.sh make test
# What stays: HOME, PATH, LANG, the temporary directory, the caches, and what package clients need to
# reach their registries (certificates, proxies, the settings of pip, uv, npm and Go).
set -eu

keep='HOME PATH LANG TMPDIR CI PYTHON PYENV_ROOT XDG_CACHE_HOME
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy
    GOPROXY GOSUMDB GOFLAGS GOTOOLCHAIN GOPATH GOCACHE'

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
# Tests give the programs that they start another HOME; the caches stay where they are.
: "${XDG_CACHE_HOME:=$HOME/.cache}"
: "${LANG:=C.UTF-8}"

for name in $(env | sed -n 's/^\(\(PIP\|UV\|NPM_CONFIG\|npm_config\|PADDLECLOUD_CHAOS\)_[A-Za-z0-9_]*\)=.*/\1/p') $keep; do
    eval "is_set=\${$name+yes} value=\${$name-}"
    [ "$is_set" != yes ] || set -- "$name=$value" "$@"
done
exec env -i "$@"
