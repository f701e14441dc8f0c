#!/usr/bin/env bash
# Searches both models: as they are, where no error may be found, and broken on purpose, where one must be.
# Needs spin and gcc. "search.sh full" also searches dispatch with two other templates (131 million states, minutes, 12 GB).
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# search model want spin-flags...     want: ok or found
search() {
  local model=$1 want=$2 name; shift 2
  name="$model $*"
  local dir="$work/$(echo "$name" | tr -c 'a-zA-Z0-9\n' _)"
  mkdir -p "$dir"; cp "$model.pml" "$dir"
  local options="-DSAFETY -DCOLLAPSE -DMEMLIM=12000 -DVECTORSZ=4096" depth=200000
  if [ "$model" = apply ]; then options="-DSAFETY -DNOREDUCE" depth=100000; fi
  (
    cd "$dir"
    spin "$@" -a "$model.pml" >/dev/null
    gcc -O2 -w $options -o pan pan.c
    ./pan -E -m$depth >out 2>&1 || true # it exits 0 either way: what counts is what it prints
  )
  local errors states complete=yes
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$dir/out")
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$dir/out")
  if grep -q -e 'Search not completed' -e 'max search depth too small' -e 'out of memory' "$dir/out"; then complete=no; fi
  local got=ok
  if [ -z "$errors" ]; then got=unreadable; elif [ "$errors" != 0 ]; then got=found; elif [ $complete = no ]; then got=incomplete; fi
  printf '%-34s %s states, errors: %s: %s, expected %s\n' "$name" "${states:-?}" "${errors:-?}" "$got" "$want"
  if [ "$got" != "$want" ]; then failed=1; tail -20 "$dir/out"; fi
}

search apply ok
search apply found -DMARKS
search apply found -DPARTS
search dispatch ok -DONE
search dispatch ok
search dispatch ok -DOPENED
search dispatch ok -DHISTORY
for broken in NO_EPOCH NO_CAS NO_REISSUE ONE_NAME RELEASE_4XX KEEP_CLAIM TAKE_BACK_UNKNOWN ANY_END; do
  search dispatch found -D$broken
done
search dispatch found -DFORGET -DOPENED
search dispatch found -DHISTORY -DBLIND
if [ "${1:-}" = full ]; then search dispatch ok -DTWO; fi
exit $failed
