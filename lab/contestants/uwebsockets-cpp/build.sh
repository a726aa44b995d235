# Builds server.cpp with the library of socketify, which is found again where it was installed.
#
# sh build.sh INSTALLED
set -eu
installed=$1
package=$(echo "$installed"/python/lib/*/site-packages/socketify)
case $(uname -m) in
  x86_64) machine=amd64 ;;
  aarch64) machine=arm64 ;;
  *) echo "socketify has no library for $(uname -m)" >&2; exit 1 ;;
esac
library=$package/libsocketify_linux_$machine.so
test -f "$library" || { echo "socketify has no $library" >&2; exit 1; }
version=$(sed -n 's/^Version: //p' "$package"-*.dist-info/METADATA)
g++ -O2 -std=c++17 -Wall -DSOCKETIFY_VERSION="\"$version\"" -I"$package/native/src" server.cpp \
  "$library" -Wl,-rpath,"$package" -pthread -o "$installed/server"
