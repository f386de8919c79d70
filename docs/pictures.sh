#!/usr/bin/env bash
# Makes the pictures of the documents: runs the examples and the demo, and renders their pages in headless Chromium.
#
#   docs/pictures.sh [FOLDER]     default: docs/pictures
#
# The picture of the dashboard comes from tests/dashboard.rs, with UPDATE_PICTURES.
# Needs Chromium (`CHROMIUM` may name it) and the DejaVu fonts, with which the pictures are the same everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."

folder="${1:-docs/pictures}"
chromium="${CHROMIUM:-chromium}"
concertina="${CONCERTINA:-target/quick/concertina}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"

draw() { # draw NAME WIDTH HEIGHT SCHEME URL. A page with a stream of events never ends to load
  local dark=0
  [ "$4" = dark ] || dark=1
  "$chromium" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
    --user-data-dir="$work/profile" --window-size="$2,$3" --blink-settings=preferredColorScheme="$dark" \
    --timeout=4000 --screenshot="$work/$1.png" "$5" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
  mv "$work/$1.png" "$folder/$1.png"
  echo "$folder/$1.png"
}

report() { # report NAME ARGUMENT...: the page of a simulation, as $work/NAME.html
  local name="$1"; shift
  "$concertina" simulate "$@" --report "$work/$name.html" >"$work/$name.txt"
}

report spikes examples/spikes.yaml

for example in examples/policies/scenarios/*.yaml; do
  name="$(basename "$example" .yaml)"
  case "$name" in forecast-*) continue ;; esac # a week takes minutes
  report "$name" "$example"
  draw "policy-$name" 1280 980 light "file://$work/$name.html"
done

draw simulate-dark 1280 980 dark "file://$work/spikes.html#c0@960"

# The demo after a day of its traffic, when one HPA is at its maximum and another is paused.
export KUBECONFIG="$work/kubeconfig"
"$concertina" demo --for 3m --write-kubeconfig "$KUBECONFIG" >"$work/demo" &
demo=$!
trap 'kill "$demo" 2>/dev/null; wait; rm -rf "$work"' EXIT
sleep 41
until grep -q max-replicas <<<"$("$concertina" why burst || true)"; do
  kill -0 "$demo"
  sleep 1
done
draw console 1180 390 light "$(sed -n 's/^All HPAs on a page: //p' "$work/demo")"
