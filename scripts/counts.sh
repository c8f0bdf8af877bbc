# Shared by the parts of ./test; sourced behind setup.sh. Runs tests and counts them. What is skipped or left out is
# counted and named: in the output by reason, one by one in build/test/PART.skipped.

passed=0 failed=0 skipped=0
out="$top/build/test"
mkdir -p "$out"
rm -rf "$out/failures"

# count PART PASSED FAILED SKIPPED
count() {
  passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
  say "$1: $2 passed, $3 failed, $4 skipped"
}

# note_failure NAME [HOW]: standard input is what a test printed that failed.
note_failure() {
  local number
  mkdir -p "$out/failures"
  number=$(find "$out/failures" -type f | wc -l)
  { printf '%s\n' "$1 failed${2:+ $2}"; cat; } >"$out/failures/$(printf %04d "$number")"
}

# show_failures: why this run is refused, where whoever opens a long log looks first. A test has the end of what it
# printed, 40 lines, or fewer where many have failed.
show_failures() {
  local one each many
  many=$(find "$out/failures" -type f 2>/dev/null | wc -l)
  [ "$many" -gt 0 ] || return 0
  each=$((120 / many))
  each=$((each > 40 ? 40 : each < 4 ? 4 : each))
  step "what failed, once more"
  for one in "$out"/failures/*; do
    say "-- $(head -1 "$one")"
    tail -n +2 "$one" | tail -n "$each" | cut -c1-600 | sed 's/^/   /'
  done
}

the_counts() {
  show_failures
  say
  local took=$((SECONDS - started))
  say "$skipped skipped, each with its reason above; $((took / 60)) min $((took % 60)) s in all"
  say "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}

# A number that follows from the commit, and says what it runs where not all is run. A commit has one more commit behind
# it than its first parent, so that as many in a row as there are parts see all of them. A shallow clone does not know
# how many there are: there the commit's own name decides, and without git the day.
number_of_commit() {
  local name
  if [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
    git rev-list --count --first-parent HEAD
  elif name=$(git rev-parse HEAD 2>/dev/null); then
    echo $((16#${name:0:8}))
  else
    echo $(($(date +%s) / 86400))
  fi
}

# Which third of the tests is run where a third is enough: 1, 2 or 3.
third_of_commit() { echo $(($(number_of_commit) % 3 + 1)); }

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

# failures_of REPORT FOLDER: writes what each failed test of a report printed into a file of FOLDER, below its name.
failures_of() {
  rm -rf "$2"
  mkdir -p "$2"
  awk -v folder="$2" '
    function plain(s) {
      gsub(/&lt;/, "<", s); gsub(/&gt;/, ">", s); gsub(/&quot;/, "\"", s); gsub(/&apos;/, "\047", s)
      gsub(/\[NON-XML-CHAR-0x1B\]\[[0-9;]*m/, "", s); gsub(/&amp;/, "\\&", s)
      return s
    }
    /<testcase / { split($0, piece, "\""); file = ""
                   if (/status="fail"/) { file = sprintf("%s/%04d", folder, ++n); print plain(piece[2]) >file } }
    file != "" && !inside && sub(/.*<system-out>/, "") { inside = 1 }
    inside { over = sub(/<\/system-out>.*/, "")
             if (!over || $0 != "") print plain($0) >file
             if (over) { inside = 0; close(file); file = "" } }' "$1"
}

# tell_failures PART PRESET REPORT: what the failed tests of a report printed, and whether they pass alone. One that
# does has failed all the same: the machine was busy, or the error comes now and then. All parts together have 300 s
# for that, because where much fails a run has no time left.
again_seconds=300
tell_failures() {
  local part=$1 preset=$2 one name why said begun=$SECONDS
  failures_of "$3" "$out/$part.failures"
  rm -f "$out/$part.again.xml"
  if [ $again_seconds -gt 0 ]; then
    timeout $again_seconds ctest --test-dir "build/$preset" --rerun-failed --timeout 300 \
      --output-junit "$out/$part.again.xml" >"$out/$part.again.log" 2>&1
    again_seconds=$((again_seconds - (SECONDS - begun)))
  fi
  sed "s/&lt;/</g; s/&gt;/>/g; s/&quot;/\"/g; s/&apos;/'/g; s/&amp;/\&/g" "$out/$part.again.xml" \
    >"$out/$part.again" 2>/dev/null
  for one in "$out/$part.failures"/*; do
    name=$(head -1 "$one")
    why=$(sed -n '/The following tests FAILED/,$p' "$out/$part.log" | grep -F -- "- $name (" | sed 's/.*(\(.*\))$/\1/')
    case $(grep -F "<testcase name=\"$name\" " "$out/$part.again") in
      *'status="run"'*) said="($why), though it passed when it was run again, alone; it counts as failed" ;;
      *'status="fail"'*) said="($why), and again when it was run alone: build/test/$part.again.xml" ;;
      *) said="($why)" ;;
    esac
    say "-- $name failed $said"
    tail -n +2 "$one" | tee "$out/$part.one" | tail -n 100
    note_failure "$part: $name" "$said" <"$out/$part.one"
  done
}

# run_ctest PART PRESET [CTEST ARGUMENT...]: counts by the report that ctest writes, and prints failures and skips
# whole. `left_out` is a pattern of tests that are not run, for the reason in `left_why`; both hold for one run.
left_out="" left_why=""
run_ctest() {
  local part=$1 preset=$2 report="$out/$1.xml" list="$out/$1.skipped" total bad skips left=0
  local -a chosen=("${@:3}") run=("${@:3}")
  [ -z "$left_out" ] || run+=(-E "$left_out")
  rm -f "$report" "$out/$part.left"
  # Two more than there are processors: many tests wait for a process or a clock.
  ctest --test-dir "build/$preset" -j $(($(nproc) + 2)) --timeout 900 --output-junit "$report" \
    --test-output-truncation middle "${run[@]}" >"$out/$part.log" 2>&1
  if [ ! -s "$report" ]; then
    tail -20 "$out/$part.log"
    note_failure "$part" "(ctest wrote no report)" <"$out/$part.log"
    count "$part" 0 1 0
    left_out="" left_why=""
    return
  fi
  attribute() { grep -m1 -A8 '<testsuite' "$report" | tr '\n' ' ' | sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p"; }
  total=$(attribute tests) bad=$(attribute failures) skips=$(($(attribute skipped) + $(attribute disabled)))
  if [ "$bad" -gt 0 ]; then
    sed -n '/The following tests FAILED/,/^Errors while/{/^Errors/!p}' "$out/$part.log"
    tell_failures "$part" "$preset" "$report" >"$out/$part.told"
    head -400 "$out/$part.told"
  fi
  # What says why it skips: GoogleTest in the line behind ": Skipped", a script behind "SKIP: ".
  awk '
    /<testcase/ { split($0, piece, "\""); name = piece[2]; why = "it says no reason"
                  skips = /status="(notrun|disabled)"/; if (/status="disabled"/) why = "disabled" }
    /<skipped/ { skips = 1 }
    /: Skipped$/ { getline; why = $0 }
    /SKIP: / { why = $0; sub(/.*SKIP: /, "", why) }
    /<\/testcase>/ { if (skips) print name "\t" why; skips = 0 }' "$report" >"$list"
  if [ -n "$left_out" ]; then
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
  left_out="" left_why=""
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
  left_why="their files have not changed, or they are long and of another third; --ci runs them"
}

# leave_out_long PRESET: makes the next run_ctest leave out the longest tests (label `only_ci`) and, of those that are
# long (labels `long_1` to `long_3`), two thirds, by the commit.
leave_out_long() {
  local name
  for name in $(names "$1" -L "^long_[^$EPL_TEST_THIRD]\$|^only_ci\$"); do
    left_out="$left_out${left_out:+|}^${name//./[.]}\$"
  done
}

# run_pieces PART PRESET MINUTES PIECE...: as run_ctest, one piece after the other. A piece is a name and what ctest is
# told to choose its tests. --ci has an hour: a piece that would end later than this many minutes after the beginning,
# as those before it went, is not begun, and its tests are counted as left out. The first is always run; it follows from
# the commit, so that as many commits in a row as there are pieces see all tests.
run_pieces() {
  local part=$1 preset=$2 last=$(($3 * 60)) n piece begun took=0
  local -a pieces=("${@:4}") chosen
  local first=$(($(number_of_commit) % ${#pieces[@]}))
  rm -f "$out/$part.late"
  for n in "${!pieces[@]}"; do
    piece=${pieces[(first + n) % ${#pieces[@]}]}
    read -ra chosen <<<"${piece#* }"
    begun=$SECONDS
    if [ "$n" -gt 0 ] && [ $((begun - started + took)) -gt "$last" ]; then
      names "$preset" "${chosen[@]}" >>"$out/$part.late"
      continue
    fi
    run_ctest "${part}_${piece%% *}" "$preset" "${chosen[@]}"
    took=$((SECONDS - begun))
  done
  [ -s "$out/$part.late" ] || return 0
  leave_out_late "$part"
}

# leave_out_late PART: counts the tests of build/test/PART.late as skipped.
leave_out_late() {
  sed 's/$/\tthis machine is slow, and these would have ended too late; .\/test --all runs them all/' "$out/$1.late" \
    >"$out/$1.skipped"
  show_skips "$out/$1.skipped"
  count "$1" 0 0 "$(wc -l <"$out/$1.late")"
}

# sixths [CTEST ARGUMENT...]: six pieces of these tests, a line each.
sixths() {
  local n
  for n in 1 2 3 4 5 6; do echo "$n -I $n,,6 $*"; done
}

# is_left_out PART NUMBER: whether a stage with a sanitizer, number 0 or 1, is left out, which then counts as skipped.
# Where the suite in release took more than 38 minutes, there is time for one of the two, and the commit decides which.
release_took=0
is_left_out() {
  [ "$release_took" -gt 2280 ] && [ $(($(number_of_commit) % 2)) != "$2" ] || return 1
  say "left out: this machine is slow, and two sanitizers would end too late; ./test --all runs both"
  count "$1" 0 0 1
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
