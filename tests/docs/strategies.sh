#!/bin/sh
# strategies.sh PAGE EPL OUT: plans by every strategy that PAGE shows as a block of JSON, by the page's own commands:
# one that makes a model, and one that reads strategy.json.
set -eu
page=$1 epl=$2 out=$3
rm -rf "$out"
mkdir -p "$out"
cd "$out"
epl() { "$epl" "$@"; }
awk '/^```/ { inside = /^```json/; blocks += inside; next } inside { print >(blocks ".json") }' "$page"
awk '/^```/ { inside = /^```sh/; next } inside' "$page" >commands
count=0
for strategy in [0-9]*.json; do
  cp "$strategy" strategy.json
  . ./commands >plan 2>&1 || { cat "$strategy" plan; exit 1; }
  grep -q '^train' plan || { cat "$strategy" plan; exit 1; }
  count=$((count + 1))
done
[ "$count" -ge 3 ] || { echo "FAILED: $page shows $count strategies"; exit 1; }
echo "$count strategies of $page"
