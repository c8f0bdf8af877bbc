#!/bin/sh
# hashes.sh EPL HASHES FOLDER... : the final weights of every case have the committed hash under every cut of the work
# that the case allows, on every machine. When the numerics change on purpose, raise numerics_version and write the file
# again from `epl check --json`.
epl=$1 hashes=$2
shift 2
failed=0 compared=0 refused=0
for options in "--threads 1" "--threads 2" "--micro-batches 2" "--micro-batches 4 --threads 2" "--ranks 2" "--ranks 2 --micro-batches 2"; do
  for folder in "$@"; do
    for case in "$folder"/*/; do
      case=${case%/}
      [ -f "$case/reference.json" ] || continue
      wanted=$(sed -n "s/^$(basename "$case") //p" "$hashes")
      [ -n "$wanted" ] || continue
      # shellcheck disable=SC2086
      line=$("$epl" check "$case" --json $options 2>/dev/null)
      case $line in
        *'"error":"pass '*"Use "*) refused=$((refused + 1)) ;; # samples mix: an error that names the node
        *"\"weights_hash\":\"$wanted\""*) compared=$((compared + 1)) ;;
        *) echo "FAILED: $(basename "$case") $options: $wanted is wanted, got $line"; failed=1 ;;
      esac
    done
  done
done
echo "$compared hashes are as committed; $refused cuts are refused, with their reasons"
[ $compared -ge 60 ] || { echo "FAILED: too few cases"; failed=1; }
exit $failed
