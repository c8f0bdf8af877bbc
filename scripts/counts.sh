# Shared by the parts of ./test; sourced behind setup.sh. Runs tests and counts them. What is skipped or left out is
# counted and named: in the output by reason, one by one in build/test/PART.skipped.

passed=0 failed=0 skipped=0
out="$top/build/test"
mkdir -p "$out"

# count PART PASSED FAILED SKIPPED
count() {
  passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
  say "$1: $2 passed, $3 failed, $4 skipped"
}

the_counts() {
  say
  local took=$((SECONDS - started))
  say "$skipped skipped, each with its reason above; $((took / 60)) min $((took % 60)) s in all"
  say "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}

# Which third of the tests this commit runs where a third is enough: 1, 2 or 3. A commit has one more commit behind it
# than its first parent, so three in a row see all tests. A shallow clone does not know how many there are: there the
# commit's own name decides, and without git the day.
third_of_commit() {
  local name
  if [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
    echo $(($(git rev-list --count --first-parent HEAD) % 3 + 1))
  elif name=$(git rev-parse HEAD 2>/dev/null); then
    echo $((16#${name:0:8} % 3 + 1))
  else
    echo $(($(date +%s) / 86400 % 3 + 1))
  fi
}

# show_skips LIST: lines "NAME<tab>REASON" as a line for each reason. Names that differ in what stands behind a slash
# are one test with many values.
show_skips() {
  awk -F '\t' '
    { name = $1; sub(/ +# GetParam.*/, "", name); whole = name
      if (name ~ /[.].*\//) sub(/\/[^\/]*$/, "/*", name)
      first[$2, name] = whole
      if (!(($2, name) in times)) names[$2] = names[$2] SUBSEP name
      times[$2, name]++; total[$2]++ }
    END { for (reason in names) {
        line = ""; n = split(names[reason], each, SUBSEP)
        for (i = 2; i <= n; i++) {
          many = times[reason, each[i]]
          line = line (i > 2 ? ", " : "") (many > 1 ? each[i] " x" many : first[reason, each[i]])
        }
        print "  skipped " total[reason] ": " reason ": " line } }' "$1" | sort -k2,2nr
}

# names PRESET [CTEST ARGUMENT...]: the tests that ctest would run, sorted.
names() { ctest --test-dir "build/$1" -N "${@:2}" 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: //p' | sort; }

# run_ctest PART PRESET [CTEST ARGUMENT...]: counts by the report that ctest writes, and prints failures and skips
# whole. `share` is what ctest is told besides (see late), `left_out` a pattern of tests that are not run, for the
# reason in `left_why`; both hold for one run.
share=() left_out="" left_why=""
run_ctest() {
  local part=$1 preset=$2 report="$out/$1.xml" list="$out/$1.skipped" total bad skips left=0
  local -a chosen=("${@:3}") run=("${@:3}")
  [ -z "$left_out" ] || run+=(-E "$left_out")
  run+=("${share[@]}")
  rm -f "$report" "$out/$part.left"
  ctest --test-dir "build/$preset" -j "$(nproc)" --timeout 900 --output-junit "$report" "${run[@]}" \
    >"$out/$part.log" 2>&1
  if [ ! -s "$report" ]; then
    tail -20 "$out/$part.log"
    count "$part" 0 1 0
    return
  fi
  attribute() { grep -m1 -A8 '<testsuite' "$report" | tr '\n' ' ' | sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p"; }
  total=$(attribute tests) bad=$(attribute failures) skips=$(($(attribute skipped) + $(attribute disabled)))
  if [ "$bad" -gt 0 ]; then
    sed -n '/The following tests FAILED/,$p' "$out/$part.log"
    ctest --test-dir "build/$preset" --rerun-failed --output-on-failure --timeout 900 2>&1 | head -300
  fi
  # What says why it skips: GoogleTest in the line behind ": Skipped", a script behind "SKIP: ".
  awk '
    /<testcase/ { split($0, piece, "\""); name = piece[2]; why = "it says no reason"
                  skips = /status="(notrun|disabled)"/; if (/status="disabled"/) why = "disabled" }
    /<skipped/ { skips = 1 }
    /: Skipped$/ { getline; why = $0 }
    /SKIP: / { why = $0; sub(/.*SKIP: /, "", why) }
    /<\/testcase>/ { if (skips) print name "\t" why; skips = 0 }' "$report" >"$list"
  if [ "${#run[@]}" != "${#chosen[@]}" ]; then
    names "$preset" "${run[@]}" >"$out/$part.names"
    names "$preset" "${chosen[@]}" | comm -23 - "$out/$part.names" >"$out/$part.left"
    left=$(wc -l <"$out/$part.left")
    sed "s/\$/\t${left_why//\//\\/}/" "$out/$part.left" >>"$list"
  fi
  [ ! -s "$list" ] || show_skips "$list"
  if [ "$total" = 0 ]; then
    say "$part: no test was found, which is a failure"
    bad=1
  fi
  count "$part" $((total - bad - skips)) "$bad" $((skips + left))
  share=() left_out="" left_why=""
}

# Bindings, packaging and samples take longer than the rest of the suite, and fail where their own files or the header
# changed. Each of these groups has: its files, the tests that run where these are as they were when the group passed
# (conformance.* for bindings), and those that are then left out.
groups=(bindings packaging samples)
files_of() {
  case $1 in
    bindings)
      echo include bindings cmake/interface core/capi/epl.abi core/capi/epl.layout tests/bindings tests/conformance
      ;;
    packaging) echo include bindings cmake CMakeLists.txt scripts/packages.txt tests/install ;;
    samples) echo include bindings samples tests/samples ;;
  esac
}
rest_of() {
  case $1 in
    bindings) echo '^bindings[.]' ;;
    packaging) echo '^packaging[.](go|rust|python|java|archives)$' ;;
    samples) echo '^samples[.][a-z]' ;;
  esac
}

# state_of GROUP: a hash of its files as they lie there, and of which languages there are to try them with.
state_of() {
  local tool
  {
    # shellcheck disable=SC2046
    git ls-files -co --exclude-standard -z -- $(files_of "$1") 2>/dev/null | sort -zu | xargs -0r sha256sum 2>/dev/null
    for tool in go rustc cargo javac mvn python3; do command -v "$tool"; done
  } | sha256sum | cut -d' ' -f1
}

# unchanged GROUP: it is as it was when it passed here. Where nothing is known, the commit before this one has passed.
unchanged() {
  local passed="$out/$1.passed"
  git rev-parse -q --verify HEAD^1 >/dev/null 2>&1 || return 1
  if [ -s "$passed" ]; then
    [ "$(head -1 "$passed")" = "$(state_of "$1")" ]
  else
    # shellcheck disable=SC2046
    git diff --quiet HEAD^1 -- $(files_of "$1") &&
      [ -z "$(git ls-files -o --exclude-standard -- $(files_of "$1"))" ]
  fi
}

# leave_out_unchanged: makes the next run_ctest leave out what would show nothing new.
leave_out_unchanged() {
  local group
  for group in "${groups[@]}"; do
    unchanged "$group" || continue
    left_out="$left_out${left_out:+|}$(rest_of "$group")"
  done
  left_why="their files have not changed; --ci runs them"
}

# remember_groups PART: of which groups all tests have been run by this part, and none failed.
remember_groups() {
  local group
  for group in "${groups[@]}"; do
    ! grep -qE "$(rest_of "$group")" "$out/$1.left" 2>/dev/null || continue
    if awk -v rest="$(rest_of "$group")" '
      /<testcase/ { split($0, piece, "\""); if (piece[2] ~ rest) { n++; if (/status="fail"/) bad++ } }
      END { exit !(n > 0 && bad == 0) }' "$out/$1.xml" 2>/dev/null; then
      { state_of "$group"; git rev-parse HEAD 2>/dev/null; } >"$out/$group.passed"
    else
      rm -f "$out/$group.passed"
    fi
  done
}
