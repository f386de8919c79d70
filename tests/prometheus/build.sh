#!/usr/bin/env bash
# Builds a program of Prometheus from its Go module and prints where it is:
#
#     export PROMTOOL="$(tests/prometheus/build.sh promtool)"
#     export PROMETHEUS="$(tests/prometheus/build.sh prometheus)"
#
# The binary lies in the cache (CONCERTINA_CACHE, or XDG_CACHE_HOME/concertina, or ~/.cache/concertina) under a name
# that contains a hash of the module's files, so that a second call returns at once. Needs Go and, the first time, a
# module proxy; several minutes cold on two cores. Of the service discoveries, only those of files and HTTP are built in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

case "${1:-}" in
    promtool | prometheus) program="$1" ;;
    *) echo 'usage: tests/prometheus/build.sh promtool|prometheus' >&2; exit 2 ;;
esac
cache="${CONCERTINA_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set, name a folder with CONCERTINA_CACHE}/.cache}/concertina}"
out="$cache/$program-$(cat go.mod go.sum build.sh | sha256sum | cut -c1-16)"
if [ ! -x "$out" ]; then
    command -v go >/dev/null || {
        echo "$program: Go is needed to build it (go.mod names the version): https://go.dev/dl/" >&2
        exit 1
    }
    mkdir -p "$cache"
    # Next to the goal, so that the last step is a rename: a killed build leaves nothing that looks complete.
    work="$(mktemp "$out.tmp.XXXXXX")"
    trap 'rm -f "$work"' EXIT
    echo "$program: building it into $out (several minutes when the Go build cache is cold)" >&2
    CGO_ENABLED=0 GOWORK=off nice -n 10 go build -mod=readonly -buildvcs=false -trimpath -tags remove_all_sd \
        -ldflags '-s -w' -o "$work" "github.com/prometheus/prometheus/cmd/$program" >&2
    chmod 755 "$work"
    mv "$work" "$out"
fi
printf '%s\n' "$out"
