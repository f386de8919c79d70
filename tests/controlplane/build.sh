#!/usr/bin/env bash
# Builds etcd, kube-apiserver and kube-controller-manager from their Go modules
# into a folder that can be used as KUBEBUILDER_ASSETS:
#
#     export KUBEBUILDER_ASSETS="$(tests/controlplane/build.sh)"
#
# usage: build.sh [OUTDIR]
#
# The folder's name is the last and only line on stdout; all else goes to stderr.
# Without OUTDIR the folder lies in the cache (CONCERTINA_CACHE, or
# XDG_CACHE_HOME/concertina, or ~/.cache/concertina) under a name that contains
# a hash of everything that decides its content, so that a second call returns
# at once and a changed version never meets an old binary. Needs Go and, the
# first time, a module proxy; about ten minutes cold on two cores.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$here"

say() { printf 'controlplane: %s\n' "$*" >&2; }

# A call from another folder decides what a relative OUTDIR means.
caller="$OLDPWD"
key="$(cat go.mod go.sum ./*.go build.sh | sha256sum | cut -c1-16)"
if [ $# -gt 1 ]; then
    say "usage: build.sh [OUTDIR]"
    exit 2
elif [ $# -eq 1 ]; then
    case "$1" in
    /*) out="$1" ;;
    *) out="$caller/$1" ;;
    esac
else
    cache="${CONCERTINA_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set, name a folder with CONCERTINA_CACHE}/.cache}/concertina}"
    out="$cache/controlplane-$key"
fi

# The key inside the folder distinguishes a finished build of these sources from an older build in a
# folder that the caller named.
if [ "$(cat "$out/key" 2>/dev/null)" = "$key" ]; then
    say "already built"
    printf '%s\n' "$out"
    exit 0
fi
# An empty folder may be a prepared cache path. Any other folder is not removed.
if [ -e "$out" ] && [ ! -e "$out/key" ] && ! rmdir "$out" 2>/dev/null; then
    say "$out exists and is not a build of this script; name another folder"
    exit 1
fi
command -v go >/dev/null || {
    say "Go is needed to build the control plane (go.mod names the version): https://go.dev/dl/"
    exit 1
}

version="$(sed -n 's|^.*k8s\.io/kubernetes \(v[0-9.]*\)$|\1|p' go.mod)"
minor="${version#v*.}"
minor="${minor%%.*}"

# Without these the server calls itself v0.0.0-master and clients that compare
# versions (and the emulation version checks) go wrong.
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version"
    flags+=" -X $package.gitMajor=1 -X $package.gitMinor=$minor"
    flags+=" -X $package.gitTreeState=clean"
done

# Next to the goal, so that the last step is a rename within one file system:
# a killed build leaves no folder that looks complete.
mkdir -p "$(dirname "$out")"
work="$(mktemp -d "$out.tmp.XXXXXX")"
trap 'rm -rf "$work"' EXIT

say "building Kubernetes $version into $out (about ten minutes when the Go build cache is cold)"
CGO_ENABLED=0 GOWORK=off nice -n 10 \
    go build -mod=readonly -buildvcs=false -trimpath -ldflags "$flags" -o "$work/kube-apiserver" . >&2
ln "$work/kube-apiserver" "$work/etcd"
ln "$work/kube-apiserver" "$work/kube-controller-manager"
"$work/kube-apiserver" --version >&2
printf '%s\n' "$key" >"$work/key"
chmod 755 "$work"

# Two builds at once are harmless: each is complete, the later one wins.
rm -rf "$out"
if ! mv -T "$work" "$out" 2>/dev/null && [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
    say "cannot move the build to $out"
    exit 1
fi
say "done in ${SECONDS} s"
printf '%s\n' "$out"
