# Builds server.cpp with uWebSockets from source, with the flags of its own makefiles: twice, with
# the OpenSSL of the system and with BoringSSL. Its load_test is built as well, once.
#
# sh build.sh INSTALLED
set -eu
installed=$1
sources=$installed/sources
cargo vendor --locked --quiet "$sources" >/dev/null
uws=$sources/libuwebsockets-sys/uWebSockets
us=$uws/uSockets
boringssl=$sources/boring-sys/deps/boringssl
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$sources/libuwebsockets-sys/Cargo.toml" | head -1)

cmake -S "$boringssl" -B "$installed/boringssl" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$installed/boringssl" --target ssl crypto --parallel "$(nproc)" >/dev/null
libraries=$(find "$installed/boringssl" -name libssl.a -o -name libcrypto.a | sort -r)

# build LIBRARY "INCLUDES" LIBRARIES...
build() {
  library=$1
  flags="-O3 -march=native -flto=auto -w $2 -DLIBUS_USE_OPENSSL -I$us/src"
  shift 2
  objects=$installed/objects-$library
  mkdir -p "$objects"
  for source in "$us"/src/*.c "$us"/src/eventing/*.c "$us"/src/crypto/*.c; do
    gcc $flags -c "$source" -o "$objects/$(basename "$source").o"
  done
  g++ $flags -std=c++20 -c "$us/src/crypto/sni_tree.cpp" -o "$objects/sni_tree.o"
  g++ $flags -std=c++20 -DUWS_NO_ZLIB -DVERSION="\"$version\"" \
    -I"$uws/src" server.cpp "$objects"/*.o "$@" -pthread -o "$installed/server-$library"
  if [ "$library" = openssl ]; then
    gcc $flags -c "$uws/benchmarks/load_test.c" -o "$installed/load_test.o"
    g++ $flags "$installed/load_test.o" "$objects"/*.o "$@" -pthread -o "$installed/load_test"
    rm "$installed/load_test.o"
  fi
  rm -r "$objects"
}

build openssl "" -lssl -lcrypto
build boringssl "-I$boringssl/include" $libraries
rm -r "$sources" "$installed/boringssl"
