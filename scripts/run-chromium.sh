#!/bin/sh
# Chromium as `make chromium` unpacked it beside this file, with the libraries that came along.
here="$(cd "$(dirname "$0")" && pwd)"
LD_LIBRARY_PATH="$(find "$here/usr/lib" -name '*.so*' -printf '%h\n' | sort -u | tr '\n' ':')"
export LD_LIBRARY_PATH
exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
