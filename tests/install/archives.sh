#!/bin/sh
# archives.sh SOURCES BUILD OUT VERSION PYTHON [whole]: what the target `archives` makes is there, is in order, and has
# the same bytes when it is made from sources in another folder, of another age and of other rights. With `whole` also
# the archives that hold what is compiled.
set -eu
sources=$1 build=$2 out=$3 version=$4 python=$5 whole=${6:-}
rm -rf "$out"
mkdir -p "$out/elsewhere"
parts="go rust source"
[ -z "$whole" ] || parts=
java=
[ ! -d "$build/languages/java" ] || java="epl-$version.jar epl-$version.pom epl-$version-sources.jar epl-$version-javadoc.jar"
sh "$sources/cmake/languages.sh" archives "$sources" "$build" "$out/one" "$version" "$python"
cd "$out/one"
sha256sum --quiet -c SHA256SUMS
for file in "libepl-$version-linux-$(uname -m).tar.gz" "epl-go-$version.tar.gz" "epl-sys-$version.crate" \
  "epl-$version.crate" "epl_engine-$version.tar.gz" $java; do
  [ -s "$file" ] || { echo "FAILED: there is no $file" && exit 1; }
done
ls epl_engine-*.whl
for file in *.tar.gz *.crate; do  # in one folder, with the licence
  [ "$(tar -tzf "$file" | cut -d/ -f1 | sort -u)" = "$(echo "$file" | sed 's/\.tar\.gz$//; s/\.crate$//')" ] ||
    { echo "FAILED: $file is not a folder of its name" && exit 1; }
  tar -tzf "$file" | grep -q -E '/(LICENSE|copyright)$' || { echo "FAILED: $file has no licence" && exit 1; }
done

(umask 077 && cp -r "$sources/bindings" "$sources/LICENSE" "$sources/include" "$out/elsewhere")
sh "$sources/cmake/languages.sh" archives "$out/elsewhere" "$build" "$out/other" "$version" "$python" $parts >/dev/null
cd "$out/other"
for file in *; do
  [ "$file" = SHA256SUMS ] || cmp "$file" "$out/one/$file"
done
rm -rf "$out/one" "$out/other" "$out/elsewhere"
