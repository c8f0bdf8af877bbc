#!/bin/sh
# strategies.sh EPL FOLDER EVERY CASE...: on the machine for tests, strategies of the standard list give the weights and
# the losses of the CPU, to the bit, with as much memory as was planned. Ranks share one GPU. Of the pairs of a case and
# a strategy each EVERYth is run, and which ones follows from the commit. Before that: what differs is found.
kernels=${XDG_CACHE_HOME:-}
. "$(dirname "$0")/../tools/begin.sh"
[ -z "$kernels" ] || export XDG_CACHE_HOME="$kernels"  # compiled by tests before this one
every=$3
shift 3

# As number_of_commit of scripts/counts.sh, which cannot be sourced while tests run.
if [ "$(git -C "$source" rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
  phase=$(git -C "$source" rev-list --count --first-parent HEAD)
else
  phase=$(($(date +%s) / 86400))
fi

# Products of a library have other bits. What the CPU takes, the device refuses for a reason that was named, or wrongly.
mlp=$source/tests/cases/mlp_sgd_legacy
echo '[{"name": "by a library", "strategy": {"reproducible.level": "data"}}]' >library.json
echo '[{"name": "one rank"}]' >one.json
expect 1 "other bits than on the CPU" "$epl" check "$mlp" --device cuda --exact --strategies library.json
expect 1 "the CPU takes it" "$epl" check "$mlp" --device cuda:9 --exact --strategies one.json
expect 0 "0 passed, 1 refused, 0 failed" "$epl" check "$mlp" --device cuda:9 --exact --strategies one.json \
  --may-refuse "there is no GPU 9"
expect 0 "1 passed, 0 refused, 0 failed" "$epl" check "$mlp" --device cuda --exact --strategies one.json

"$epl" check "$@" --device cuda --exact --strategies "$source/tests/cases/strategies.json" --every "$every" \
  --phase "$phase" --may-refuse "this device has one memory" >said.txt 2>&1 || fail "phase $phase of $every"
cat said.txt
! grep -q '^test machine: ' said.txt || fail "what the machine found"
passed=$(sed -n 's/^\([0-9]*\) passed, .*/\1/p' said.txt)
[ "${passed:-0}" -ge 3 ] || fail "few pairs were compared: ${passed:-none}"
exit $failed
