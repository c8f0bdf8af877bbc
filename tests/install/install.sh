#!/bin/sh
# install.sh SOURCES BUILD OUT [whole]: what cmake --install and cpack make, used by a program of three lines as a
# stranger would. With `whole` the library is also built inside another project (minutes); without, that project is
# configured, and one of the library's files is compiled. Leaves the Debian packages installed in OUT/root, a system of
# its own, where the tests of the languages' packages find them.
set -u
sources=$1 build=$2 out=$3 whole=${4:-}
rm -rf "$out" && mkdir -p "$out" && cd "$out" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
# run WHAT COMMAND...: must succeed; its output is shown where it does not.
run() {
  what=$1
  shift
  "$@" >log 2>&1 || { fail "$what: $*"; tail -30 log; }
}

java=
[ ! -d "$build/languages/java" ] || java=libepl-java
python=
[ ! -d "$build/languages/python" ] || python=python3-epl
cuda=
[ ! -e "$build/lib/libepl_cuda.so" ] || cuda=libepl1-cuda
prefix=$out/a\ prefix
run "install" cmake --install "$build" --prefix "$prefix"
for file in include/epl.h include/epl.hpp include/epl_settings.hpp include/epl_launch.hpp include/epl_dl.h \
  lib/libepl.so lib/libepl.so.1 \
  lib/cmake/epl/epl-config.cmake lib/pkgconfig/epl.pc bin/epl \
  share/man/man1/epl.1 \
  share/bash-completion/completions/epl share/zsh/site-functions/_epl share/fish/vendor_completions.d/epl.fish \
  share/doc/libepl1/copyright share/doc/libepl-dev/README.md share/doc/libepl-dev/docs/strategy.md lib/libepl.a \
  share/gocode/src/epl.ai/go/go.mod share/cargo/registry/epl-0.1.0/Cargo.toml \
  share/cargo/registry/epl-sys-0.1.0/.cargo-checksum.json ${python:+lib/python3/dist-packages/epl/__init__.py} \
  ${java:+share/java/epl.jar lib/jni/libepl_jni.so share/maven-repo/ai/epl/epl/0.1.0/epl-0.1.0.jar}; do
  [ -s "$prefix/$file" ] || fail "$file is not installed"
done
# What the documents link to lies beside them.
find "$prefix/share/doc" -name '*.md' | while read -r page; do
  awk '/```/ { code = !code; next } !code' "$page" | grep -o -E '\]\([A-Za-z.][^)# ]*' | sed 's/^](//' |
    grep -v '://' | while read -r target; do
    [ -e "$(dirname "$page")/$target" ] || echo "$page: $target"
    echo "$target" >>links
  done
done >dangling
[ "$(wc -l <links)" -gt 50 ] && [ ! -s dangling ] || fail "links of the documents: $(cat dangling)"
run "the installed tool finds its library" env -i "$prefix/bin/epl" --version
run "the installed library" env -i "$prefix/bin/epl" template mlp --sizes 4,8,2 --out mlp.onnx

# A program that takes the archive in may have an OpenSSL of its own.
nm "$prefix/lib/libepl.a" 2>/dev/null | grep -E ' [A-Z] (SHA|OPENSSL|CRYPTO|ossl|getenv)' >names
[ ! -s names ] || fail "libepl.a has names of OpenSSL: $(cat names)"

# The line of the README, by pkg-config, and a project that calls find_package.
cp "$sources/tests/install/program.c" "$sources/tests/install/CMakeLists.txt" .
if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
  run "pkg-config" sh -c 'eval cc program.c $(pkg-config --cflags --libs epl) -o by_pkg_config'
  run "the program made by pkg-config" env LD_LIBRARY_PATH="$prefix/lib" ./by_pkg_config
  run "C++" sh -c "eval c++ -std=c++20 '$sources/samples/cpp/first.cc' \$(pkg-config --cflags --libs epl) -o by_cpp"
  run "the program of the page on C++" env LD_LIBRARY_PATH="$prefix/lib" ./by_cpp
  export PKG_CONFIG_PATH="$build/pkgconfig"
  run "pkg-config, not installed" sh -c 'eval cc program.c $(pkg-config --cflags --libs epl) -o by_build'
  run "the program made with what is not installed" env -i ./by_build
else
  fail "pkg-config is not installed"
fi
run "find_package" cmake -S . -B by_package -DWAY=package -DCMAKE_PREFIX_PATH="$prefix"
run "find_package: build" cmake --build by_package
run "find_package: run" ./by_package/program

for way in subdirectory fetch; do
  run "$way" cmake -G Ninja -S . -B by_$way -DWAY=$way -DEPL_SOURCES="$sources" -DCMAKE_BUILD_TYPE=Release
  run "$way: every input of every step exists" ninja -C by_$way -n program
  run "$way: a file of the library" ninja -C by_$way \
    "$(ninja -C by_$way -t targets all | sed -n 's/^\(.*core\/base\/text\.cc\.o\):.*/\1/p' | head -1)"
  if ninja -C by_$way -t targets all | grep -q -E 'test_ops|epl_tool'; then fail \
    "$way builds tests or the tool, which nobody asked for"; fi
  if [ -n "$whole" ] && [ $way = subdirectory ]; then
    run "$way: build" cmake --build by_$way
    run "$way: run" ./by_$way/program
  fi
done

# Completion by the shell itself.
offered=$(bash -c 'source "$1"; COMP_WORDS=(epl tr); COMP_CWORD=1; _epl; echo "${COMPREPLY[@]}"; COMP_WORDS=(epl train --optim); COMP_CWORD=2; _epl; echo "${COMPREPLY[@]}"; COMP_WORDS=(epl train --optimizer ad); COMP_CWORD=3; _epl; echo "${COMPREPLY[@]}"' - "$prefix/share/bash-completion/completions/epl")
for word in train --optimizer adamw; do
  case " $(echo "$offered" | tr '\n' ' ')" in *" $word "*) ;; *) fail "completion does not offer $word: $offered" ;; \
    esac
done
grep -q '^\.SS epl train' "$prefix/share/man/man1/epl.1" || fail "the man page does not describe epl train"

if command -v dpkg-deb >/dev/null; then
  run "cpack" cpack --config "$build/CPackConfig.cmake" -B "$out/packages"
  # The leftovers of staging are the size of the library again.
  rm -rf "$out/packages/_CPack_Packages"
  ls packages/*.deb >log 2>&1 || fail "no packages"
  set --
  for package in libepl1 libepl-dev epl golang-epl-go-dev librust-epl-dev $python $java $cuda; do
    deb=$(ls packages/${package}_*.deb 2>/dev/null | head -1)
    [ -n "$deb" ] || { fail "no package $package"; continue; }
    set -- "$@" "$deb"
    dpkg-deb --field "$deb" Depends >log
    case $package in
      libepl1) grep -q libc6 log && ! grep -q 'libstdc++' log || fail "libepl1 depends on $(cat log)" ;;
      golang-* | librust-*) grep -q 'libepl-dev (= ' log || fail "$package depends on $(cat log)" ;;
      *) grep -q 'libepl1 (= ' log || fail "$package depends on $(cat log)" ;;
    esac
    # Nothing of NVIDIA's is needed to install it, and what a GPU needs is named.
    [ "$package" = libepl1-cuda ] || continue
    ! grep -q -i -E 'cuda|nvidia|cublas' log || fail "$package depends on $(cat log)"
    dpkg-deb --field "$deb" Recommends >log
    for library in 'libcuda1 (>= 580)' cuda-nvrtc-13-0 libcublas-13-0; do
      grep -q -F "$library" log || fail "$package does not recommend $library: $(cat log)"
    done
    dpkg-deb --contents "$deb" | grep -q '/lib/libepl_cuda\.so$' || fail "$package has no libepl_cuda.so"
  done
  if [ "$(id -u)" = 0 ]; then
    # A system with the libraries of C and C++ alone, as far as dpkg knows. The packages' scripts run outside of it, for
    # it has no shell, and find an ldconfig that leaves this machine's cache alone, and no Python's tools.
    mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates scripts
    for package in libc6 libgcc-s1 libstdc++6; do
      dpkg-query -s $package | grep -v -E '^(Depends|Pre-Depends|Recommends|Conffiles| /)'
      echo
      : >"root/var/lib/dpkg/info/$package:$(dpkg --print-architecture).list"
    done >root/var/lib/dpkg/status
    # And a Python, which one of the packages asks for.
    printf '%s\n' "Package: python3" "Status: install ok installed" "Architecture: $(dpkg --print-architecture)" \
      "Version: 3.11" "Maintainer: none" "Description: none" "" >>root/var/lib/dpkg/status
    : >root/var/lib/dpkg/info/python3.list
    printf '#!/bin/sh\necho "$DPKG_MAINTSCRIPT_NAME" >>"%s/ldconfig.log"\n' "$out" >scripts/ldconfig
    printf '#!/bin/sh\n[ "$*" = "-p python3-epl" ]\n' | tee scripts/py3compile >scripts/py3clean
    chmod +x scripts/*
    packager() {
      run "dpkg $1" env PATH="$out/scripts:$PATH" dpkg --root="$out/root" --force-script-chrootless --log=dpkg.log "$@"
    }
    packager -i "$@"
    packager -r epl golang-epl-go-dev librust-epl-dev $python $java $cuda libepl-dev libepl1
    left=$(find root ! -type d ! -path 'root/var/lib/dpkg/*')
    [ -z "$left" ] || fail "dpkg -r left $left"
    packager -i "$@"
    grep -q postrm ldconfig.log || fail "the packages do not run ldconfig: $(cat ldconfig.log)"
  else
    for deb in "$@"; do dpkg-deb -x "$deb" root || fail "$deb cannot be unpacked"; done
  fi
  printf 'a,b,c,d,kind\n' >table.csv
  i=0
  while [ $i -lt 16 ]; do echo "$i,1,0,$((i % 3)),$((i % 2))" >>table.csv; i=$((i + 1)); done
  run "training by the unpacked packages" env -i ./root/usr/bin/epl train mlp.onnx --data table.csv --data-options \
    '{"classes": true}' --steps 3 --out trained
  [ -s trained/trained.onnx ] || fail "the packages' epl train left no trained.onnx"
  if [ -n "$cuda" ]; then
    run "a plan for a GPU by the unpacked packages" env -i ./root/usr/bin/epl plan mlp.onnx --data table.csv \
      --data-options '{"classes": true}' --device cuda:h100
    grep -q 'the plan fits' log || fail "the package $cuda plans for no GPU: $(cat log)"
    run "the libraries of a GPU" env -i ./root/usr/bin/epl devices
    grep -q 'cuda-nvrtc-13-0' log || fail "epl devices does not say what brings NVRTC: $(cat log)"
  fi
else
  echo "SKIP: no dpkg-deb here, so no Debian packages"
fi

# What was installed last goes again, and nothing else.
echo mine >"$prefix/lib/mine"
run "uninstall" cmake --build "$build" --target uninstall
left=$(find "$prefix" -type f -o -type l)
[ "$left" = "$prefix/lib/mine" ] || fail "uninstall left $left"
exit $failed
