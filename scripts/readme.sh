#!/usr/bin/env bash
# readme.sh: prints samples/01_hello.c into README.md, in place of the code block that follows "whole:". A test keeps
# them equal.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
awk -v sample=samples/01_hello.c '
  function paste() { print "```c"; while ((getline line < sample) > 0) print line; print "```" }
  /^<!-- sample: / { paste(); next }
  /^```c$/ { paste(); inside = 1; next }
  inside { if ($0 == "```") inside = 0; next }
  { print }' README.md >README.md.new
mv README.md.new README.md
