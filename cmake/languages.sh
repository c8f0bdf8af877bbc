#!/bin/sh
# What the languages are given, from bindings/ and a build.
#
# languages.sh stage SOURCES OUT VERSION PYTHON
#   The trees that `cmake --install` copies: OUT/go, the module; OUT/rust, a folder for each crate, as cargo reads a
#   folder in place of its registry; OUT/python, the package and what pip knows of it (without a PYTHON, none).
# languages.sh java SOURCES OUT VERSION LIBRARY RPATH
#   OUT/epl-VERSION.jar with the library LIBRARY in it; OUT/share and OUT/jni for a system that has the library, which
#   RPATH says from the folder of libepl_jni.so.
# languages.sh archives SOURCES BUILD OUT VERSION PYTHON [PART...]
#   What is published: an archive for each language in OUT, and SHA256SUMS. The same sources and compilers give the same
#   bytes, whoever makes them, where and when. Parts: library go rust source python java; all where none is named.
#   `python` and `java` have the library of `library` in them.
set -eu
what=$1 sources=$2

go_module() { # go_module OUT
  mkdir -p "$1"
  to=$(cd "$1" && pwd)
  (cd "$sources/bindings/go" && find . \( -name '*.go' -o -name go.mod \) -exec cp --parents -t "$to" {} +)
  cp "$sources/LICENSE" "$1"
}

# A dependency on a crate beside this one is one on the registry's.
crate() { # crate NAME OUT
  from=$sources/bindings/rust/$1
  mkdir -p "$2"
  for part in README.md build.rs src examples tests; do
    [ ! -e "$from/$part" ] || cp -r "$from/$part" "$2"
  done
  cp "$sources/LICENSE" "$2"
  sed 's/{ path = "[^"]*", /{ /' "$from/Cargo.toml" >"$2/Cargo.toml"
}

stage() { # stage OUT VERSION PYTHON
  rm -rf "$1/go" "$1/rust" "$1/python"
  go_module "$1/go"
  for name in epl-sys epl; do
    crate $name "$1/rust/$name-$2"
    echo '{"files": {}}' >"$1/rust/$name-$2/.cargo-checksum.json"
  done
  [ -z "$3" ] || "$3" "$sources/bindings/python/wheel.py" --tree "$1/python"
}

java() { # java OUT VERSION LIBRARY RPATH
  sh "$sources/bindings/java/build.sh" "$3" "$1/build" "$4"
  rm -rf "$1/share" "$1/jni"
  maven=share/maven-repo/ai/epl/epl/$2
  mkdir -p "$1/share/java" "$1/$maven" "$1/jni"
  mv "$1/build/epl.jar" "$1/epl-$2.jar"
  mv "$1/build/system/epl.jar" "$1/share/java/epl-$2.jar"
  mv "$1/build/system/libepl_jni.so" "$1/jni"
  ln -s "epl-$2.jar" "$1/share/java/epl.jar"
  # Who takes the artefact has no use for how it was made.
  sed -e '/<!--/,/-->/d' -e '/<properties>/,/<\/properties>/d' -e '/<build>/,/<\/build>/d' \
    "$sources/bindings/java/pom.xml" >"$1/$maven/epl-$2.pom"
  ln -s "../../../../../java/epl-$2.jar" "$1/$maven/epl-$2.jar"
  rm -rf "$1/build"
}

packed() { # packed FOLDER NAME ARCHIVE: the folder NAME in FOLDER
  tar -C "$1" --sort=name --format=ustar --mtime=@946684800 --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX -cf - "$2" | gzip -9n >"$3"
}

# Library and headers, as cpack installs them.
library() { # library BUILD WORK OUT VERSION
  name=libepl-$4-linux-$(uname -m)
  cpack --config "$1/CPackConfig.cmake" -G TGZ -B "$2/cpack" -D 'CPACK_COMPONENTS_ALL=runtime;development' \
    -D CPACK_ARCHIVE_COMPONENT_INSTALL=ON -D CPACK_COMPONENTS_GROUPING=ALL_COMPONENTS_IN_ONE \
    -D CPACK_PACKAGING_INSTALL_PREFIX=/ -D CPACK_INCLUDE_TOPLEVEL_DIRECTORY=OFF >"$2/log" 2>&1 ||
    { cat "$2/log" && exit 1; }
  mkdir "$2/$name"
  tar -C "$2/$name" -xzf "$2"/cpack/*.tar.gz
  packed "$2" "$name" "$3/$name.tar.gz"
  cp "$(find "$2/$name" -name libepl.so.1)" "$2/libepl.so.1"
}

archives() { # archives BUILD OUT VERSION PYTHON [PART...]
  rm -rf "$2"
  mkdir -p "$2/work"
  build=$1 out=$(cd "$2" && pwd) version=$3 python=$4
  work=$out/work
  shift 4
  [ $# -gt 0 ] || set -- library go rust source python java
  for part in "$@"; do
    case $part in
      library) library "$build" "$work" "$out" "$version" ;;
      go)
        go_module "$work/epl-go-$version"
        packed "$work" "epl-go-$version" "$out/epl-go-$version.tar.gz"
        ;;
      rust)
        for name in epl-sys epl; do
          crate $name "$work/$name-$version"
          packed "$work" "$name-$version" "$out/$name-$version.crate"
        done
        ;;
      source) [ -z "$python" ] || "$python" "$sources/bindings/python/wheel.py" --source "$out" >"$work/log" ;;
      python)
        [ -z "$python" ] ||
          "$python" "$sources/bindings/python/wheel.py" "$work/libepl.so.1" "$out" >"$work/log"
        ;;
      java)
        [ -d "$build/languages/java" ] || continue
        java "$work/java" "$version" "$work/libepl.so.1" '$ORIGIN/..'
        mv "$work/java/epl-$version.jar" "$out"
        sh "$sources/bindings/java/docs.sh" "$work/docs"
        for jar in sources javadoc; do mv "$work/docs/epl-$jar.jar" "$out/epl-$version-$jar.jar"; done
        cp "$work/java/share/maven-repo/ai/epl/epl/$version/epl-$version.pom" "$out"
        ;;
    esac
  done
  rm -rf "$work"
  (cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
}

shift 2
case $what in
  stage) stage "$@" ;;
  java) java "$@" ;;
  archives) archives "$@" ;;
  *) echo "$0 does not know $what" && exit 2 ;;
esac
