#!/bin/sh
# cases.sh EPL FOLDER [OPTION...]: every case below FOLDER passes; a folder that is not there is a skip.
epl=$1 folder=$2
shift 2
set -- "$@"
cases=""
for reference in "$folder"/*/reference.json; do
  [ -f "$reference" ] && cases="$cases ${reference%/reference.json}"
done
[ -n "$cases" ] || { echo "SKIP: no cases in $folder"; exit 0; }
# shellcheck disable=SC2086
exec "$epl" check $cases "$@"
