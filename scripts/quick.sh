# ./test --quick [FOLDER]; sourced by ./test. What breaks most often and is quickly seen: structure, texts of plans and
# programs, the tests of ir, base, strategy, program and train, and two cases over two ranks. It builds in the folder of
# preset release-tests, so that nothing is built twice, and runs the programs by themselves: ctest would start each
# thousand of tests as a process.
quick_folders="structure golden strategy program ir base train"
quick_cases="mlp_sgd_legacy gpt_legacy_adamw"

# test_folder FOLDER: the folder of tests for a folder of sources: core/strategy/passes is `strategy`.
test_folder() {
  local path=${1%/} name
  path=${path#./}
  case $path in
    backends/cpu/kernels*) path=kernels ;;
    backends/*) path=backend ;;
    frontends/*) path=onnx ;;
  esac
  while [ -n "$path" ] && [ "$path" != . ]; do
    name=$(basename "$path")
    if [ "$name" = core ]; then break; fi
    if [ -n "$(find "tests/$name" -name '*_test.cc' -print -quit 2>/dev/null)" ]; then
      echo "$name"
      return
    fi
    path=$(dirname "$path")
  done
  stop "no tests for '$1'; there are: $(find tests -name '*_test.cc' | cut -d/ -f2 | sort -u | tr '\n' ' ')"
}

# run_program NAME: a program of GoogleTest. What it prints of failures is shown whole.
run_program() {
  build/release-tests/bin/test_"$1" --gtest_brief=1 --gtest_filter=-Timed* --gtest_output=xml:"$out/quick_$1.xml" \
    >"$out/quick_$1.log" 2>&1
  echo $? >"$out/quick_$1.code"
}
count_program() {
  local log="$out/quick_$1.log" ran bad skips code
  number() { sed -n "s/^\[ *$1 *\] \([0-9]*\) test.*/\1/p" "$log" | head -1; }
  ran=$(number PASSED) bad=$(grep -c '^\[  FAILED  \] [^0-9]' "$log") skips=$(number SKIPPED)
  code=$(cat "$out/quick_$1.code")
  if [ "$code" != 0 ]; then
    tail -60 "$log"
    [ "$bad" -gt 0 ] || bad=1
  elif [ "${ran:-0}" = 0 ]; then
    say "$1: no test was run, which is a failure"
    bad=1
  fi
  if [ "${skips:-0}" -gt 0 ]; then
    awk -F '"' '
      /<testcase / { name = $2; for (i = 3; i < NF; i += 2) if ($i == " classname=") name = $(i + 1) "." name }
      /<skipped / { why = $2; sub(/.*&#x0A;/, "", why); print name "\t" why }' \
      "$out/quick_$1.xml" >"$out/quick_$1.skipped"
    show_skips "$out/quick_$1.skipped"
  fi
  count "$1" "${ran:-0}" "$bad" "${skips:-0}"
}

run_quick() {
  local folder="" own="" one running=0 hash expected
  if [ -n "${1:-}" ]; then
    folder=$(test_folder "$1") || exit 1
    own="test_$folder"
    quick_folders="$folder $(printf '%s\n' $quick_folders | grep -vx "$folder" | tr '\n' ' ')"
  fi
  export EPL_TEST_THIRD
  EPL_TEST_THIRD=$(third_of_commit)
  step "build (release-tests, what these tests need)"
  # shellcheck disable=SC2046
  build release-tests epl_tool $own $(printf 'test_%s ' $quick_folders)
  step "tests"
  if [ -n "$folder" ]; then  # first and alone, so that its answer is there at once
    run_program "$folder"
    count_program "$folder"
  fi
  for one in $quick_folders; do
    [ "$one" != "$folder" ] || continue
    [ $running -lt "$(nproc)" ] || { wait -n; running=$((running - 1)); }
    run_program "$one" &
    running=$((running + 1))
  done
  wait
  for one in $quick_folders; do
    [ "$one" = "$folder" ] || count_program "$one"
  done
  for one in $quick_cases; do
    hash=$(build/release-tests/bin/epl check "tests/cases/$one" --ranks 2 --json 2>"$out/quick_case.log" |
      sed -n 's/.*"weights_hash": *"\([^"]*\)".*/\1/p')
    expected=$(awk -v name="$one" '$1 == name { print $2 }' tests/cases/hashes.txt)
    if [ -n "$hash" ] && [ "$hash" = "$expected" ]; then
      count "$one" 1 0 0
    else
      cat "$out/quick_case.log"
      say "$one: the weights have the hash '$hash', not '$expected' of tests/cases/hashes.txt"
      count "$one" 0 1 0
    fi
  done
}
