#!/usr/bin/env bash
# Builds KEDA's operator and its metrics adapter from their Go module:
#
#     export CONCERTINA_KEDA="$(tests/keda/build.sh)"
#
# The last and only line on stdout is a folder with both programs, `operator` and `adapter`, and `crds`, the
# CustomResourceDefinitions of the module. It lies in the cache (CONCERTINA_CACHE, or XDG_CACHE_HOME/concertina, or
# ~/.cache/concertina) under a name that contains a hash of everything that decides its content. Needs Go and, the first
# time, a module proxy; about ten minutes cold on two cores.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
key="$(cat go.mod go.sum build.sh | sha256sum | cut -c1-16)"
cache="${CONCERTINA_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set, name a folder with CONCERTINA_CACHE}/.cache}/concertina}"
out="$cache/keda-$key"
if [ ! -d "$out" ]; then
    command -v go >/dev/null || {
        echo 'keda: Go is needed (go.mod names the version): https://go.dev/dl/' >&2
        exit 1
    }
    export GOWORK=off
    go mod download >&2
    # The programs are built inside of their module: its `replace` lines do not apply to a module that depends on it.
    source="$(go list -mod=mod -m -f '{{.Dir}}' github.com/kedacore/keda/v2)"
    version="$(go list -mod=mod -m -f '{{.Version}}' github.com/kedacore/keda/v2)"
    mkdir -p "$cache"
    # The last step is a rename within one file system: a killed build leaves nothing that looks complete.
    work="$(mktemp -d "$out.tmp.XXXXXX")"
    trap 'rm -rf "$work"' EXIT
    echo "keda: building $version into $out (about ten minutes when the Go build cache is cold)" >&2
    CGO_ENABLED=0 nice -n 10 go build -C "$source" -mod=readonly -buildvcs=false -trimpath \
        -ldflags "-s -w -X github.com/kedacore/keda/v2/version.Version=${version#v}" -o "$work/" ./cmd/operator ./cmd/adapter >&2
    cp -r "$source/config/crd/bases" "$work/crds"
    chmod -R u+w,go+rX "$work"
    rm -rf "$out"
    mv -T "$work" "$out"
    trap - EXIT
fi
printf '%s\n' "$out"
