#!/usr/bin/env bash
# Makes the pictures of the documents: runs the examples and renders their reports in headless Chromium.
#
#   docs/pictures.sh [FOLDER]     default: docs/pictures
#
# Needs Chromium (`CHROMIUM` may name it) and the DejaVu fonts, with which the pictures are the same everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."

folder="${1:-docs/pictures}"
chromium="${CHROMIUM:-chromium}"
concertina="${CONCERTINA:-target/quick/concertina}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"

draw() { # draw NAME WIDTH HEIGHT SCHEME PAGE[#MOMENT]
  local dark=0
  [ "$4" = dark ] || dark=1
  "$chromium" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
    --user-data-dir="$work/profile" --window-size="$2,$3" --blink-settings=preferredColorScheme="$dark" \
    --screenshot="$work/$1.png" "file://$5" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
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
  report "$name" "$example"
  draw "policy-$name" 1280 980 light "$work/$name.html"
done

draw simulate-dark 1280 980 dark "$work/spikes.html#c0@960"
