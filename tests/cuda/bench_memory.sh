#!/bin/sh
# bench_memory.sh ROOT OUT: bench/gpu fails where a training has used more memory than was planned. Something that
# answers as epl says what a case gives.
root=$1 out=$2
case=mlp_sgd_legacy
hash=$(sed -n "s/^$case //p" "$root/tests/cases/hashes.txt")
rm -rf "$out" && mkdir -p "$out/bin" || exit 1
bench() {  # planned and used
  printf '#!/bin/sh\necho %s\n' "'{\"weights_hash\": \"$hash\", \"pass\": true, $1}'" >"$out/bin/epl"
  chmod +x "$out/bin/epl"
  "$root/bench/gpu" --build "$out" --out "$out/said" --stages cases --jobs 1 --seconds 60 \
    --cases "$root/tests/cases/$case" >"$out/text" 2>&1
}
fail() { echo "$1"; cat "$out/text"; exit 1; }
bench '"planned_peak_bytes": 1000, "measured_peak_bytes": 1000' || fail "as much as was planned is enough"
bench '"planned_peak_bytes": 1000, "measured_peak_bytes": 1001' && fail "a byte more than was planned"
grep -q "not as it should be: memory, one rank" "$out/text" || fail "it does not say what is wrong"
bench '"planned_peak_bytes": 1000' && fail "nothing is said of what was used"
exit 0
