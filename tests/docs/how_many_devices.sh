#!/bin/sh
# how_many_devices.sh PAGE EPL OUT: runs each command of PAGE as it stands there, with the file that it shows, and looks
# for what the page says of what is printed.
set -eu
page=$1 epl=$2 out=$3
rm -rf "$out"
mkdir -p "$out"
cd "$out"
epl() { "$epl" "$@"; }
awk '/^```/ { inside = /^```json/; next } inside' "$page" >machine.json
awk '/^```/ { inside = /^```sh/; next } inside' "$page" >commands
count=0
while IFS= read -r command; do
  eval "$command" >said 2>&1 </dev/null || { echo "FAILED: $command"; cat said; exit 1; }
  case $command in
    *--devices*) words="adding devices pays up to " ;;
    *--why*) words=" ms for a step, rehearsed" ;;
    *--save*) words="wrote four.plan" ;;
    *) words="model.onnx" ;;
  esac
  grep -q "$words" said || { echo "FAILED: $command does not say \"$words\""; cat said; exit 1; }
  if grep -q "no plan is possible" said; then
    echo "FAILED: $command"
    cat said
    exit 1
  fi
  count=$((count + 1))
done <commands
[ "$count" -ge 6 ] || { echo "FAILED: $page shows $count commands"; exit 1; }
echo "$count commands of $page"
