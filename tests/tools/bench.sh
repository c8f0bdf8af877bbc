#!/bin/sh
# bench.sh EPL OUT: levels are measured in rounds and said as a table or as JSON lines, one for each.
. "$(dirname "$0")/begin.sh"
case="$source/tests/cases/mlp_sgd_legacy"
expect 0 '| mlp_sgd_legacy | 2 | layout |' "$epl" bench "$case" --rounds 1 --steps 2
"$epl" bench "$case/" --levels data,layout --ranks 1 --rounds 2 --steps 2 --json >lines.json || fail "epl bench --json"
[ "$(grep -c '"seconds":' lines.json)" = 2 ] || fail "a line for each level: $(cat lines.json)"
grep -q '"cost":0,\|"cost":0.0,' lines.json || fail "the first level costs nothing: $(cat lines.json)"
expect 2 'there is no "date"' "$epl" bench "$case" --levels run,date
expect 4 '' "$epl" bench "$case" --levels data --strategy '{"communication.num_communicators": 2}' --rounds 1
exit $failed
