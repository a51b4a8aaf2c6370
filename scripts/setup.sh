#!/usr/bin/env bash
# Installs uv, the system GL library, the locked packages and this project, editable. Idempotent; what else is
# installed, such as extras, stays.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }

have_gl() { PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -qE 'libEGL\.so\.1|libOSMesa\.so'; }

find_uv() {
  for candidate in uv "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv"; do
    if command -v "$candidate" >/dev/null 2>&1; then command -v "$candidate"; return; fi
  done
}

UV=$(find_uv || true)
if [ -z "$UV" ]; then
  say "installing uv"
  python3 -m pip install --quiet --user --root-user-action=ignore uv 2>/dev/null \
    || python3 -m pip install --quiet --user --break-system-packages uv \
    || { say "could not install uv; install it (pip install uv) and run this again"; exit 1; }
  UV=$(find_uv || true)
  [ -n "$UV" ] || UV="$(python3 -m site --user-base)/bin/uv"
fi

if [ "$(uname -s)" = Linux ] && ! have_gl; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing the system GL library (libegl1, libosmesa6)"
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libegl1 libgl1 libosmesa6) >/dev/null \
      || say "could not install GL; run: apt-get install libegl1 libgl1 libosmesa6"
  else
    say "no system GL library found; run: sudo apt-get install libegl1 libgl1 libosmesa6"
  fi
fi

[ -x .venv/bin/python ] || "$UV" venv --quiet --python '>=3.11,<3.13' .venv
say "installing the locked packages"
"$UV" pip install --quiet --python .venv/bin/python --require-hashes --requirements requirements.lock
"$UV" pip install --quiet --python .venv/bin/python --no-deps --editable .
say "ready"
