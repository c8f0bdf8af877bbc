# Shared by ./quickstart and ./test; sourced, not run. Says what it does, installs what is missing and nothing else, and
# ends with a sentence that helps when it cannot. Needs bash and, to install, apt with root or sudo.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
started=$SECONDS

say() { printf '%s\n' "$*"; }
step() { printf '\n== %s  [%dm%02ds]\n' "$*" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)); }
stop() {
  printf '\n%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# need_space FOLDER MIB: a full disk shows as a compiler or tar error far from its cause, so it is asked first.
need_space() {
  local free
  free=$(df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')
  [ "$free" -ge "$2" ] || stop "$1 has $free MiB free and this needs about $2 MiB; make room there and run it again."
}

# as_root COMMAND...: as root itself, else through sudo; need_root says so beforehand where neither is possible.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
need_root() {
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
    stop "packages must be installed and this is neither root nor is there sudo; as root run: apt-get install -y $missing"
}

# The packages of the groups given that are not there yet, in `missing`.
find_missing() {
  local group package probe wanted
  missing=""
  while read -r group package probe; do
    case "$group" in '' | \#*) continue ;; esac
    for wanted in "$@"; do
      [ "$group" = "$wanted" ] || continue
      case "$probe" in
        cmd:*) command -v "${probe#cmd:}" >/dev/null || missing="$missing $package" ;;
        *) [ -e "$probe" ] || missing="$missing $package" ;;
      esac
    done
  done <"$top/scripts/packages.txt"
  missing=${missing# }
}

apt_log=""
apt_quietly() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >>"$apt_log" 2>&1; }

# install_groups GROUP...: everything of these groups, or the end.
install_groups() {
  find_missing "$@"
  if [ -z "$missing" ]; then
    say "nothing to install: every package of '$*' is here"
    return
  fi
  command -v apt-get >/dev/null ||
    stop "this needs the packages below and the system has no apt-get (Debian 12 is what it is made for): $missing"
  say "installing: $missing"
  need_root
  need_space /var 1500
  apt_log=$(mktemp)
  if ! apt_quietly update; then
    tail -5 "$apt_log" >&2
    stop "apt-get update failed: is there a network, and does /etc/apt name a mirror that it reaches? Full log: $apt_log"
  fi
  if ! apt_quietly install -y --no-install-recommends $missing; then
    tail -5 "$apt_log" >&2
    need_space /var 200
    ! grep -q -E 'Failed to fetch|Could not resolve|Could not connect' "$apt_log" ||
      stop "apt-get reached no mirror: is there a network, and does /etc/apt name one that it reaches? Full log: $apt_log"
    stop "apt-get could not install what is missing (see above); full log: $apt_log"
  fi
  rm -f "$apt_log"
}

# install_optional GROUP...: one package at a time; what cannot be had is said and left to the tests to count as
# skipped.
install_optional() {
  local package
  find_missing "$@"
  [ -n "$missing" ] || return 0
  if ! command -v apt-get >/dev/null || { [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; }; then
    say "not installed, the tests that need them are skipped: $missing"
    return 0
  fi
  apt_log=$(mktemp)
  for package in $missing; do
    say "installing (optional): $package"
    apt_quietly install -y --no-install-recommends "$package" ||
      say "  not available here: tests that need $package are skipped and counted"
  done
  rm -f "$apt_log"
}

# build PRESET [TARGET...]: configures once, then builds; a compiler's output is shown only where it fails.
build() {
  local preset=$1 log="$top/build/$1.log"
  shift
  mkdir -p "$top/build"
  if ! (cd "$top" && cmake --preset "$preset") >"$log" 2>&1; then
    tail -30 "$log" >&2
    stop "cmake --preset $preset failed; full log: $log"
  fi
  if ! (cd "$top" && cmake --build --preset "$preset" ${1:+--target "$@"}) 2>&1 | tee -a "$log" | build_progress; then
    grep -E -A12 'error:|undefined reference|^FAILED|No space' "$log" | tail -40 >&2
    need_space "$top" 300
    stop "building preset $preset failed; full log: $log"
  fi
  say "$preset is built  [$(((SECONDS - started) / 60))m$(((SECONDS - started) % 60))s]"
}

# One line that moves on a terminal; every hundredth object elsewhere, so that a log stays readable.
build_progress() {
  if [ -t 1 ]; then
    awk '/^\[/ { printf "\r\033[K%.100s", $0; fflush() } END { printf "\r\033[K" }'
  else
    awk '/^\[[0-9]+\/[0-9]+\]/ { n++; if (n % 100 == 0) print $1, "built" } END { print n + 0, "steps built" }'
  fi
}

set -o pipefail
