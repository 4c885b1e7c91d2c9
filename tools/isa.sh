# shellcheck shell=bash
# Sourced by ./dev: runs the tests with the instructions of other processors.
# oneDNN, MKL, LibTorch and Tern's kernels each choose their code by the processor's
# instructions, so rounding and scratch memory differ between processors. The
# variables below make them choose as on an older processor.

isa_names=(native onednn-avx2 onednn-avx512 baseline avx2)

# isa_settings NAME: prints the environment variables, one per line.
isa_settings() {
  case $1 in
    native) ;;
    onednn-avx2) printf '%s\n' ONEDNN_MAX_CPU_ISA=AVX2 ;;
    onednn-avx512) printf '%s\n' ONEDNN_MAX_CPU_ISA=AVX512_CORE ;;
    baseline) printf '%s\n' ATEN_CPU_CAPABILITY=default TERN_CPU_ISA=baseline ;;
    avx2) printf '%s\n' ATEN_CPU_CAPABILITY=avx2 TERN_CPU_ISA=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ;;
  esac
}

# isa_hides NAME FLAGS: true if a processor with these flags of /proc/cpuinfo has
# instructions that the setting hides. Otherwise the setting equals native.
isa_hides() {
  local newer
  case $1 in
    native) return 0 ;;
    onednn-avx2) newer='avx512f|avx_vnni' ;;
    onednn-avx512) newer='avx512_vnni|avx512_bf16|avx512_fp16|amx_bf16|amx_int8' ;;
    baseline) newer='avx2' ;;
    avx2) newer='avx512f' ;;
  esac
  grep -qwE "$newer" <<<"$2"
}

processor_flags() { grep -m 1 '^flags' /proc/cpuinfo || true; }

# run_isa PRESET NAME|all [CTEST-OPTION...]: runs the tests under one setting, or under
# each in turn. Continues after a failure and prints a table at the end.
run_isa() {
  local preset=$1 wanted=$2 name failed=0 outcome flags settings table=""
  shift 2
  [ "$wanted" = all ] || expect_names setting "${isa_names[*]}" "all ${isa_names[*]}" "$wanted"
  flags=$(processor_flags)
  [ -n "$flags" ] || [ "$wanted" = native ] || die "/proc/cpuinfo has no flags of x86-64, and these settings" \
    "are for x86-64 only; run ./dev test without --isa."
  for name in "${isa_names[@]}"; do
    [ "$wanted" = all ] || [ "$wanted" = "$name" ] || continue
    mapfile -t settings < <(isa_settings "$name")
    if ! isa_hides "$name" "$flags"; then
      outcome="the same as native on this processor, so it was not run"
    else
      say "Tests with ${settings[*]:-all instructions of this processor}"
      outcome=passed
      (
        [ ${#settings[@]} -eq 0 ] || export "${settings[@]}"
        run_tests "$preset" "$@"
      ) || { outcome=FAILED && failed=1; }
    fi
    table+=$(printf 'dev:   %-14s %s: %s' "$name" "${settings[*]:-no variable}" "$outcome")$'\n'
  done
  say "Results by instruction setting:"
  printf '%s' "$table" >&2
  return "$failed"
}
