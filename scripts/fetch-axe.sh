#!/bin/sh
# Fetch axe-core, which checks pages for accessibility, into the folder $1.
set -eu
[ ! -e "$1/axe.min.js" ] || exit 0
command -v npm >/dev/null || { echo "no npm to fetch axe-core: its tests of the page are skipped"; exit 0; }
mkdir -p "$1"
cd "$1"
npm pack --silent axe-core@4.14.1 >/dev/null
tar -xzf axe-core-4.14.1.tgz --strip-components=1 package/axe.min.js
rm axe-core-4.14.1.tgz
