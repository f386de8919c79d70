#!/usr/bin/env bash
# Builds a program that records decisions of Knative's Autoscaler on random load:
#
#     "$(tests/kpa/build.sh)" FIRST_SEED COUNT | gzip > folder/kpa.jsonl.gz
#     CONCERTINA_KPA=folder cargo test --profile quick --test kpa
#
# A dependency of v0.51.0 is not on the module proxy. The autoscaler of v0.42.2 decides alike for a reachable
# revision, except that its windows round down. Therefore this builds v0.42.2 with the windows of v0.51.0.
#
# The program's name is the last and only line on stdout. It lies in the cache (CONCERTINA_CACHE, or
# XDG_CACHE_HOME/concertina, or ~/.cache/concertina) under a name that contains a hash of everything that decides its
# content. Needs Go and, the first time, a module proxy; two minutes cold on two cores.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
key="$(cat go.mod go.sum ./*.go build.sh | sha256sum | cut -c1-16)"
cache="${CONCERTINA_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set, name a folder with CONCERTINA_CACHE}/.cache}/concertina}"
out="$cache/kpa-$key"
if [ ! -x "$out" ]; then
    command -v go >/dev/null || {
        echo 'kpa: Go is needed (go.mod names the version): https://go.dev/dl/' >&2
        exit 1
    }
    mkdir -p "$cache"
    windows=pkg/autoscaler/aggregation/bucketing.go
    module() { go mod download -json "knative.dev/serving@$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }
    old="$(module v0.42.2)"
    new="$(module v0.51.0)"
    work="$(mktemp -d "$out.tmp.XXXXXX")"
    trap 'rm -rf "$work"' EXIT
    cp go.mod go.sum main.go "$work"
    mkdir "$work/serving"
    cp -r --no-preserve=mode "$old/go.mod" "$old/pkg" "$work/serving"
    cp --no-preserve=mode "$new/$windows" "$work/serving/$windows"
    (
        cd "$work"
        go mod edit -replace knative.dev/serving=./serving
        CGO_ENABLED=0 GOWORK=off nice -n 10 \
            go build -mod=readonly -buildvcs=false -trimpath -ldflags '-s -w' -o program . >&2
    )
    # The last step is a rename within one file system: a killed build leaves nothing that looks complete.
    chmod 755 "$work/program"
    mv -T "$work/program" "$out"
    rm -rf "$work"
    trap - EXIT
fi
printf '%s\n' "$out"
