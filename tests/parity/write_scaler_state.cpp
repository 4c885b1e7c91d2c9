// Writes the states of scalers in use and their next traces, with which
// check_scaler_state.py continues. Usage: write_scaler_state FILE

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tern/tests/parity/scaler_events.h"

namespace {

using nlohmann::json;
using namespace tern::test;  // NOLINT(google-build-using-namespace)

json gradients(const char* kind) {
  return {{"gradients", {kind}}};
}

json state(const json& options, const json& before, const json& after) {
  tern::GradScaler scaler = make_scaler(options);
  play(scaler, before, amp_aware_sgd);
  const json saved = to_json(scaler.state_dict());
  return {
      {"state_dict", saved},
      {"events", after},
      {"trace", play(scaler, after, amp_aware_sgd)}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: write_scaler_state FILE\n";
    return 2;
  }
  const json clean = gradients("finite"), inf = gradients("inf");
  const json before =
      json::array({clean, clean, inf, clean, gradients("nan"), clean});
  const json after = json::array(
      {clean,
       clean,
       clean,
       inf,
       clean,
       clean,
       clean,
       clean,
       clean,
       inf,
       clean});
  const json states = json::array(
      {state({{"init_scale", 512.}, {"growth_interval", 4}}, before, after),
       state({{"growth_interval", 1}}, before, after),
       state(
           {{"init_scale", 1000.},
            {"growth_factor", 1.3},
            {"backoff_factor", 0.7},
            {"growth_interval", 2}},
           before,
           after)});
  std::ofstream file(argv[1]);
  file << json{{"states", states}}.dump(1) << '\n';
  return file.flush() ? 0 : 1;
}
