#!/usr/bin/env bash
# Builds a program that reads pages and queries with Prometheus' own parsers. Ignored tests of the crates exposition
# and promql run it.
#
# The program's name is the last and only line on stdout. It lies in the cache (CONCERTINA_CACHE, or
# XDG_CACHE_HOME/concertina, or ~/.cache/concertina) under a name that contains a hash of everything that decides its
# content. Needs Go and, the first time, a module proxy; a minute cold on two cores.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
key="$(cat go.mod go.sum ./*.go build.sh | sha256sum | cut -c1-16)"
cache="${CONCERTINA_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set, name a folder with CONCERTINA_CACHE}/.cache}/concertina}"
out="$cache/exposition-$key"
if [ ! -x "$out" ]; then
    command -v go >/dev/null || {
        echo 'exposition: Go is needed (go.mod names the version): https://go.dev/dl/' >&2
        exit 1
    }
    mkdir -p "$cache"
    # The last step is a rename within one file system: a killed build leaves nothing that looks complete.
    work="$(mktemp "$out.tmp.XXXXXX")"
    trap 'rm -f "$work"' EXIT
    CGO_ENABLED=0 GOWORK=off nice -n 10 \
        go build -mod=readonly -buildvcs=false -trimpath -ldflags '-s -w' -o "$work" . >&2
    chmod 755 "$work"
    mv -T "$work" "$out"
    trap - EXIT
fi
printf '%s\n' "$out"
