#!/bin/sh
# Fetch Chromium into the folder $1, unless a browser is on PATH. It comes with missing libraries, from the packages of the
# distribution (Debian or a derivative). This needs no root rights and changes nothing else on the machine.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
for browser in chromium chromium-browser google-chrome chromium-headless-shell; do
  ! command -v "$browser" >/dev/null || exit 0
done
[ ! -x "$1/chromium" ] || exit 0
command -v apt-get >/dev/null || { echo "no Chromium and no apt-get to fetch one: tests of the page in a browser are skipped"; exit 0; }

echo "fetching Chromium from the distribution into $1"
rm -rf "$1"
mkdir -p "$1/apt/lists/partial" "$1/apt/cache/archives/partial" "$1/packages"
cd "$1"

# Uses its own package lists: those of the machine may be old or missing, and only root can update them.
apt() {
  apt-get -qq -o Dir::State="$PWD/apt" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$PWD/apt/cache" \
    -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}

apt update
packages="$(apt -s --no-install-recommends install chromium-headless-shell | awk '/^Inst/ {print $2}')"
# shellcheck disable=SC2086 # a word for each package
apt download $packages
for package in *.deb; do
  dpkg-deb -x "$package" .
done
rm -rf apt packages ./*.deb
install -m 755 "$here/run-chromium.sh" unpacked
./unpacked --headless --no-sandbox --dump-dom about:blank >/dev/null 2>&1 || { echo "Chromium does not start: $1/unpacked" >&2; exit 1; }
mv unpacked chromium # only now is it complete
