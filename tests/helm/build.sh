#!/usr/bin/env bash
# Builds helm from its Go module and prints where it is:
#
#     export HELM="$(tests/helm/build.sh)"
#
# The binary lies in the cache (CONCERTINA_CACHE, or XDG_CACHE_HOME/concertina, or ~/.cache/concertina) under a name
# that contains a hash of the module's files, so that a second call returns at once. Needs Go and, the first time, a
# module proxy; about two minutes cold on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache="${CONCERTINA_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set, name a folder with CONCERTINA_CACHE}/.cache}/concertina}"
out="$cache/helm-$(cat go.mod go.sum build.sh | sha256sum | cut -c1-16)"
if [ ! -x "$out" ]; then
    command -v go >/dev/null || {
        echo "helm: Go is needed to build it (go.mod names the version): https://go.dev/dl/" >&2
        exit 1
    }
    mkdir -p "$cache"
    # Next to the goal, so that the last step is a rename: a killed build leaves nothing that looks complete.
    work="$(mktemp "$out.tmp.XXXXXX")"
    trap 'rm -f "$work"' EXIT
    echo "helm: building it into $out (about two minutes when the Go build cache is cold)" >&2
    CGO_ENABLED=0 GOWORK=off nice -n 10 \
        go build -mod=readonly -buildvcs=false -trimpath -ldflags '-s -w' -o "$work" helm.sh/helm/v4/cmd/helm >&2
    chmod 755 "$work"
    mv "$work" "$out"
fi
printf '%s\n' "$out"
