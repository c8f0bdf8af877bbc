#!/usr/bin/env bash
# corpus.sh FILE: writes the quickstart's text to FILE, one verse a line (4.1 MB).
#
# The text is the King James Version as Debian's bible-kjv-text packages it. The translation is of 1611 and its
# copyright has expired (the package's copyright file says so); the program that prints it is GPL and is only run, not
# linked.
set -eu -o pipefail
bible -f 'gen1:1-rev22:21' </dev/null | sed 's/^[^ ]* //' >"$1.part"
size=$(stat -c %s "$1.part")
if [ "$size" -lt 4000000 ]; then
  echo "corpus.sh: the bible program printed $size bytes, 4 million were expected; is bible-kjv-text installed whole?" \
    >&2
  exit 1
fi
mv "$1.part" "$1"
