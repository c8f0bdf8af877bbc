# What the scripts of this folder begin with: sourced as `. "$(dirname "$0")/begin.sh"` by a script that is run with EPL
# and OUT. It stands in OUT, which is new, and ends with `exit $failed`.
set -u
epl=$1 out=$2 source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$out" && mkdir -p "$out" && cd "$out" || exit 1
export XDG_CACHE_HOME="$PWD/cache"  # no test writes to the user's
failed=0
fail() { echo "FAILED: $*"; failed=1; }

# expect CODE WORDS COMMAND...: the exit code, and words that the output has. $output stays for the caller.
expect() {
  code=$1 pattern=$2
  shift 2
  output=$("$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] || fail "$* ended with $got, not $code: $output"
  case $output in *"$pattern"*) ;; *) fail "$* did not say \"$pattern\": $output" ;; esac
}

# holds WHAT COMMAND...: that the command ends well.
holds() {
  what=$1
  shift
  "$@" || fail "$what"
}

# book.txt, and model.onnx that learns it.
small_job() {
  awk 'BEGIN { for (i = 0; i < 3000; ++i) printf "line %d of %d and %d\n", i, i % 7, i % 13 }' >book.txt
  "$epl" template gpt2 --layers 1 --width 16 --heads 2 --context 16 --vocab 256 --out model.onnx >/dev/null || exit 1
}

# value NAME FILE: the last number of that name in JSON lines.
value() { sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$2" | tail -n 1; }
# hash_of FILE: of the weights, in a manifest or the lines of a run.
hash_of() { sed -n 's/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' "$1"; }
same() { cmp -s "$1" "$2" || fail "$1 and $2 differ: $3"; }
