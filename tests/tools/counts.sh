#!/usr/bin/env bash
# counts.sh SOURCE FOLDER: what ./test says of tests that failed, and of those that a slow machine has no time for. It
# runs the functions of scripts/counts.sh over tests of its own.
set -u
set -o pipefail
source=$1 top=$2
rm -rf "$top"
mkdir -p "$top/build/x"
cd "$top" || exit 1
cat >build/x/CTestTestfile.cmake <<END
add_test(good "sh" "-c" "echo fine")
add_test("bad <1>" "sh" "-c" "seq 200; echo 'a <b> & c'; printf '\\\\033[31mlast\\\\033[0m words'; exit 1")
add_test(now_and_then "sh" "-c" "[ -e $top/mark ] || { touch $top/mark; echo the first time; exit 1; }")
add_test(hangs "sh" "-c" "echo begun; sleep 60")
set_tests_properties(hangs PROPERTIES TIMEOUT 1)
END
say() { printf '%s\n' "$*"; }
step() { printf '\n== %s\n' "$*"; }
started=$SECONDS
. "$source/scripts/counts.sh"
{
  run_ctest part x
  echo "an oracle's words" | note_failure oracle
  the_counts && say "and that is success"
} >said 2>&1

wrong=0
# wants WHAT PATTERN: it stands in the end, where what failed is said once more.
sed -n '/^== what failed, once more/,$p' said >end
wants() { grep -qxE -- "$2" end || { echo "FAILED: $1: no '$2'"; wrong=1; }; }
wants "a failure has its name and its kind" '-- part: bad <1> failed \(Failed\), and again when it was run alone: .*'
wants "the last words of a test" '   last words'
wants "marks of XML are undone" '   a <b> & c'
wants "a test that passes alone has failed" \
  '-- part: now_and_then failed \(Failed\), though it passed when it was run again, alone; it counts as failed'
wants "it is the first output that is told" '   the first time'
wants "what hangs" '-- part: hangs failed \(Timeout\), .*'
wants "what is no test of ctest" '-- oracle failed'
wants "the counts are last" '1 passed, 3 failed'
[ "$(tail -1 end)" = "1 passed, 3 failed" ] || { echo "FAILED: the counts are not the last line"; wrong=1; }
[ "$(grep -c '^   [0-9]' end)" -lt 40 ] || { echo "FAILED: more than the end of a long output"; wrong=1; }
[ $wrong = 0 ] || cat said

# What is said for one run does not hold for the next one, also where the first has no report.
left_out=good left_why="it is left out"
run_ctest nothing no_such_preset >said 2>&1
grep -q '^nothing: 0 passed, 1 failed, 0 skipped$' said || { echo "FAILED: a run without a report"; cat said; wrong=1; }
[ -z "$left_out$left_why" ] || { echo "FAILED: $left_out, $left_why hold for the next run"; wrong=1; }

# Sixths of 20 tests: all where there is time, and one where there is none.
mkdir build/y
for n in $(seq 20); do echo "add_test(t$n \"sh\" \"-c\" \"echo $n >>$top/ran\")"; done >build/y/CTestTestfile.cmake
pieces() {
  local -a six
  mapfile -t six < <(sixths -R .)
  passed=0 failed=0 skipped=0
  rm -f ran
  run_pieces pieces y "$1" "${six[@]}" >said 2>&1
  ran=$(sort -u ran | wc -l)
  sums="$1: $ran ran, $passed passed, $failed failed, $skipped skipped"
  shift
  [ "$passed $failed $((passed + skipped))" = "$ran 0 20" ] && "$@" || { echo "FAILED: $sums"; cat said; wrong=1; }
}
all_of() { [ "$ran" = 20 ]; }
one_sixth() { [ "$ran" -ge 3 ] && [ "$ran" -le 4 ] && grep -q 'skipped 1[67]: this machine is slow' said; }
pieces 60 all_of
pieces -1 one_sixth

# Of two stages with sanitizers a slow machine runs one, and a fast one both.
stages() {
  release_took=$1
  for n in 0 1; do is_left_out stage $n >>said || echo "stage $n"; done | wc -l
}
[ "$(stages 2281) $(stages 2280)" = "1 2" ] || { echo "FAILED: stages of a slow machine"; cat said; wrong=1; }

# Of tests that are long, a third by the commit, and all three together are all but the longest.
mkdir build/z
for n in long_1 long_2 long_3 only_ci; do
  printf 'add_test(%s "true")\nset_tests_properties(%s PROPERTIES LABELS "tools;%s")\n' "$n" "$n" "$n"
done >build/z/CTestTestfile.cmake
printf 'add_test(longer "true")\n' >>build/z/CTestTestfile.cmake
for EPL_TEST_THIRD in 1 2 3; do
  left_out="" left_why="of another third"
  leave_out_long z
  names z -E "$left_out"
done | sort >said
[ "$(tr '\n' ' ' <said)" = "long_1 long_2 long_3 longer longer longer " ] ||
  { echo "FAILED: thirds of what is long"; cat said; wrong=1; }
exit $wrong
