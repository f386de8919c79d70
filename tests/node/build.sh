#!/usr/bin/env bash
# Installs the packages of package-lock.json and prints the folder that contains them:
#
#     node_modules="$(tests/node/build.sh)"
#
# The folder lies in the cache (CONCERTINA_CACHE, or XDG_CACHE_HOME/concertina, or ~/.cache/concertina) under a name
# that contains a hash of the lock, so that a second call returns at once. Needs npm and, the first time, a registry.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache="${CONCERTINA_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set, name a folder with CONCERTINA_CACHE}/.cache}/concertina}"
out="$cache/node-$(cat package.json package-lock.json build.sh | sha256sum | cut -c1-16)"
if [ ! -d "$out" ]; then
    command -v npm >/dev/null || {
        echo "node: npm is needed to install the packages: apt-get install npm, or https://nodejs.org" >&2
        exit 1
    }
    mkdir -p "$cache"
    # Next to the goal, so that the last step is a rename: an install that is killed leaves nothing that looks complete.
    work="$(mktemp -d "$out.tmp.XXXXXX")"
    trap 'rm -rf "$work"' EXIT
    cp package.json package-lock.json "$work"
    (cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --silent >&2)
    mv "$work" "$out"
fi
printf '%s\n' "$out/node_modules"
