// Exports random modules in every format and compares the files with the
// modules.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/script.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/support/error_text.h"
#include "tern/learner/export/embedded_torchscript.h"
#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/learner/export/onnx/make_graph.h"
#include "tern/learner/export/onnx/operators.h"
#include "tern/learner/export/torchscript.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/random_modules.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::random_export_test {
namespace {

using testing_support::quiet;
using testing_support::random_case;
using testing_support::random_steps;
using testing_support::RandomCase;
using torch::Tensor;
namespace fs = std::filesystem;

std::vector<std::string> names_of_steps() {
  std::vector<std::string> names;
  for (const auto& [name, step] : random_steps()) names.push_back(name);
  return names;
}

//
// ---- Export formats ----

OnnxOptions onnx_options_of(const RandomCase& drawn) {
  return {.dynamic_size = drawn.has_any_size};
}

// As a Learner exports a model without an architecture.
Model one_file_of(const RandomCase& drawn) {
  const auto data = std::make_shared<TensorDataset>(
      Tensors{drawn.input},
      Tensors{torch::zeros({drawn.input.size(0)}, torch::kLong)});
  DataBunch bunch =
      DataBunch::create(data, data, {.batch_size = 2, .workers = 0});
  bunch.device = torch::kCPU;
  Learner learn(bunch, Model(drawn.module), quiet());
  return model_of_graph(graph_of(learn, /*half=*/false), "random");
}

// ---- Comparisons ----

// The largest difference relative to the largest number; infinite if shapes,
// dtypes or NaN positions differ.
double distance(const Tensors& expected, const Tensors& actual) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (expected.size() != actual.size()) return kInfinity;
  double farthest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Tensor &own = expected[i], &other = actual[i];
    if (own.sizes() != other.sizes()) return kInfinity;
    if (own.scalar_type() != other.scalar_type()) return kInfinity;
    if (own.numel() == 0) continue;
    const Tensor a = own.to(torch::kDouble), b = other.to(torch::kDouble);
    const Tensor off = torch::where(a.isnan() & b.isnan(), 0, (a - b).abs())
                           .nan_to_num(kInfinity, kInfinity, kInfinity);
    const double largest = a.nan_to_num(0, 0, 0).abs().max().item<double>();
    farthest =
        std::max(farthest, off.max().item<double>() / std::max(largest, 0.3));
  }
  return farthest;
}

// Number of samples, and whether images are larger than the example's.
const std::vector<std::pair<int64_t, bool>> kSizes = {
    {1, false},
    {2, false},
    {3, false},
    {5, false},
    {17, false},
    {1, true},
    {3, true}};

// Outputs of the module in double; empty if a step does not support double.
Tensors exact_outputs(const RandomCase& drawn, const Tensor& input) {
  Model model(drawn.module);
  std::vector<std::pair<Tensor, Tensor>> kept;
  for (const ModelTensor& t : model.state()) {
    if (t.tensor.scalar_type() != torch::kFloat) continue;
    kept.emplace_back(t.tensor, t.tensor.detach());
    Tensor tensor = t.tensor;
    tensor.set_data(t.tensor.detach().to(torch::kDouble));
  }
  Tensors outputs;
  try {
    outputs = model.forward(
        {input.is_floating_point() ? input.to(torch::kDouble) : input});
  } catch (const std::exception&) {  // the steps mix two dtypes
  }
  for (auto& [tensor, original] : kept) tensor.set_data(original);
  return outputs;
}

// True if the output depends on rounding: the module rounds or compares a value
// at a threshold, or divides by a vanishing difference. Then double, or small
// changes of the inputs, the weights or the results of its steps, give
// different outputs.
bool stands_on_an_edge(const RandomCase& drawn, const Tensor& input) {
  Model model(drawn.module);
  const Tensors expected = model.forward({input});
  Tensors exact = exact_outputs(drawn, input);
  for (size_t i = 0; i < exact.size(); ++i) {
    exact[i] = exact[i].to(expected[i].scalar_type());
  }
  if (!exact.empty() && distance(expected, exact) > 5e-5) return true;
  std::vector<std::pair<Tensor, Tensor>> kept;
  for (const ModelTensor& t : model.state()) {
    if (!t.tensor.is_floating_point()) continue;
    kept.emplace_back(t.tensor, t.tensor.clone());
  }
  bool moves = false;
  for (int i = 0; i < 20 && !moves; ++i) {
    const double by = i % 2 == 0 ? 1e-6 : 1e-5;
    const auto moved = [&](const Tensor& x) {
      if (!x.is_floating_point()) return x.clone();
      return x + by * (x + 0.1) * torch::randn_like(x);
    };
    for (auto& [tensor, original] : kept) tensor.copy_(moved(original));
    drawn.module->noise = by;
    moves = distance(expected, model.forward({moved(input)})) > 50 * by;
  }
  for (auto& [tensor, original] : kept) tensor.copy_(original);
  drawn.module->noise = 0;
  return moves;
}

bool stands_on_an_edge(const RandomCase& drawn) {
  return std::ranges::any_of(kSizes, [&](const auto& size) {
    const auto& [samples, is_larger] = size;
    if (is_larger && !drawn.has_any_size) return false;
    try {
      return stands_on_an_edge(drawn, drawn.inputs(samples, is_larger));
    } catch (const std::exception&) {  // size not accepted
      return false;
    }
  });
}

// How many modules are drawn for each single step.
constexpr uint64_t kDraws = 2;

struct Counts {
  int64_t modules = 0, on_edges = 0;
  std::map<std::string, int64_t> compared, refused;
};

// Compares `run` with the module at every size that the module accepts.
template <typename Run>
void compare(
    const std::string& form,
    const RandomCase& drawn,
    bool takes_any_size,
    Counts& counts,
    const Run& run) {
  Model model(drawn.module);
  ++counts.compared[form];
  for (const auto& [samples, is_larger] : kSizes) {
    if (is_larger && !takes_any_size) continue;
    const Tensor input = drawn.inputs(samples, is_larger);
    Tensors expected;
    try {
      expected = model.forward({input});
    } catch (const std::exception&) {
      continue;
    }
    double off = 0;
    std::string error;
    try {
      off = distance(expected, run(input));
    } catch (const std::exception& e) {
      error = message_of(e);
    }
    if (error.empty() && off <= 1e-4) continue;
    if (stands_on_an_edge(drawn, input)) {
      ++counts.on_edges;
      return;
    }
    ADD_FAILURE() << form << " is off by " << off << " " << error << " for "
                  << c10::str(input.sizes()) << "\n"
                  << drawn.module->text();
    return;
  }
}

// Runs an export and returns whether it succeeded. Counts a rejection, whose
// message must be a sentence.
template <typename Export>
bool exported(
    const std::string& form,
    const RandomCase& drawn,
    Counts& counts,
    const Export& run) {
  std::string why;
  try {
    run();
    return true;
  } catch (const c10::ValueError& error) {
    why = error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << form << ": " << error.what() << "\n"
                  << drawn.module->text();
    return false;
  }
  EXPECT_EQ(why.find('['), 0u) << why;
  EXPECT_NE(why.find('.'), std::string::npos) << why;
  const bool is_wrong = why.find("this is a bug in Tern") != std::string::npos;
  if (is_wrong) {
    if (stands_on_an_edge(drawn)) {
      ++counts.on_edges;
      return false;
    }
    ADD_FAILURE() << form << ": " << why << "\n" << drawn.module->text();
    return false;
  }
  ++counts.refused[form];
  if (std::getenv("TERN_RANDOM_SEED") != nullptr) {
    std::cout << form << ": " << why << "\n";
  }
  return false;
}

enum class Exported { no, for_multiples, for_any_size };

Exported
exports_as_onnx(const RandomCase& drawn, const fs::path& file, Counts& counts) {
  const OnnxOptions options = onnx_options_of(drawn);
  const bool is_onnx = exported("ONNX", drawn, counts, [&] {
    export_onnx(Model(drawn.module), file, {drawn.input}, options);
  });
  if (!is_onnx) return Exported::no;
  const onnx::TracedGraph traced =
      onnx::make_graph(Model(drawn.module), {drawn.input}, options);
  const bool takes_any_size = drawn.has_any_size && traced.takes_odd_sizes;
  compare("ONNX", drawn, takes_any_size, counts, [&](const Tensor& x) {
    return traced.graph->compute({x});
  });
  return takes_any_size ? Exported::for_any_size : Exported::for_multiples;
}

// ---- For Python ----

// A folder set by ctest, emptied of files of an earlier run, or a temporary
// folder.
struct Folder {
  explicit Folder(const char* variable) {
    const char* const shared = std::getenv(variable);
    is_shared = shared != nullptr;
    path = is_shared ? fs::path(shared) : temp.path();
    make_folders(path);
    for (const auto& file : fs::directory_iterator(path)) {
      const std::string name = file.path().filename().string();
      if (name.starts_with("random_")) fs::remove(file.path());
    }
  }
  TempFolder temp;
  fs::path path;
  bool is_shared = false;
};

void save_expected(
    const fs::path& path,
    const RandomCase& drawn,
    bool takes_any_size) {
  StateDict expected;
  expected.insert("relative", torch::scalar_tensor(1e-4));
  Model model(drawn.module);
  for (const auto& [samples, is_larger] : kSizes) {
    if (is_larger && !takes_any_size) continue;
    const Tensor input = drawn.inputs(samples, is_larger);
    Tensors outputs;
    try {
      outputs = model.forward({input});
    } catch (const std::exception&) {
      continue;
    }
    if (stands_on_an_edge(drawn, input)) continue;
    const std::string size =
        std::to_string(samples) + (is_larger ? " larger" : "");
    expected.insert(size + ".input.0", input);
    for (size_t i = 0; i < outputs.size(); ++i) {
      expected.insert(
          fmt::format("{}.output.{}", size, i),
          outputs[i].contiguous());
    }
  }
  save_pth(path, expected);
}

// ---- The tests ----

// Steps that can be exported on their own for some arguments.
std::vector<std::string> written_names() {
  std::vector<std::string> written;
  for (const std::string& name : names_of_steps()) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      std::mt19937_64 random(seed);
      const RandomCase drawn = random_case(random, {name}, 1);
      if (drawn.module->steps.empty()) continue;
      try {
        onnx::make_graph(
            Model(drawn.module),
            {drawn.input},
            onnx_options_of(drawn));
        written.push_back(name);
        break;
      } catch (const c10::ValueError&) {
        if (seed > 20) break;
      }
    }
  }
  return written;
}

TEST(RandomExports, EqualTheirModules) {
  const torch::NoGradGuard no_grad;
  const torch::jit::GraphOptimizerEnabledGuard no_optimizer(false);
  const Folder onnx_folder("TERN_ONNX_FOLDER"),
      script_folder("TERN_TORCHSCRIPT_FOLDER");
  const auto written = written_names(), all = names_of_steps();
  const bool is_long = std::getenv("TERN_RANDOM_SECONDS") != nullptr;
  const int64_t most_files = is_long ? 300 : 60;
  Counts counts;
  for_random_cases(150, [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    const auto& names = draw(0, 5) == 0 ? all : written;
    const int64_t length = draw(2, 8);
    const RandomCase drawn = random_case(random, names, length);
    const int64_t number = counts.modules++;
    if (std::getenv("TERN_RANDOM_SEED") != nullptr) {
      std::cout << drawn.module->text();
    }
    const std::string name = fmt::format("random_{}", seed);
    const Model model(drawn.module);

    const bool is_kept = onnx_folder.is_shared && number < most_files;
    const fs::path file =
        (is_kept ? onnx_folder.path : onnx_folder.temp.path()) /
        (name + ".onnx");
    const Exported as_onnx = exports_as_onnx(drawn, file, counts);
    if (as_onnx != Exported::no && is_kept) {
      save_expected(
          fs::path(file).replace_extension(".pth"),
          drawn,
          as_onnx == Exported::for_any_size);
    }

    const bool is_seen = script_folder.is_shared && number % 5 == 0;
    const fs::path script =
        (is_seen ? script_folder.path : script_folder.temp.path()) /
        (name + ".pt");
    const bool is_script = exported("TorchScript", drawn, counts, [&] {
      export_torchscript(model, script, {drawn.input});
    });
    if (is_script) {
      Model loaded(torch::jit::load(script.string()));
      compare("TorchScript", drawn, false, counts, [&](const Tensor& x) {
        return loaded.forward({x});
      });
      if (is_seen) {
        save_expected(
            fs::path(script).replace_extension(".pth"),
            drawn,
            /*takes_any_size=*/false);
      }
    }

    std::optional<Model> one_file;
    const bool is_one_file = exported("one file", drawn, counts, [&] {
      one_file = one_file_of(drawn);
    });
    if (is_one_file) {
      compare("one file", drawn, false, counts, [&](const Tensor& x) {
        return one_file->forward({x});
      });
    }
  });
  for (const char* form : {"ONNX", "TorchScript", "one file"}) {
    std::cout << fmt::format(
        "{}: {} of {} modules refused\n",
        form,
        counts.refused[form],
        counts.modules);
  }
  std::cout << counts.on_edges
            << " not compared because rounding decides their output\n";
  if (counts.modules >= 100) {
    EXPECT_LT(counts.refused["ONNX"], counts.modules / 2);
    EXPECT_LT(counts.on_edges, counts.modules / 10);
  }
}

// The shortest modules run first, so that a failure shows the operator.
TEST(RandomExports, OfSingleStepsEqualTheirModules) {
  const torch::NoGradGuard no_grad;
  const TempFolder temp;
  Counts counts;
  for (const std::string& name : names_of_steps()) {
    for (uint64_t seed = 1, drawn_steps = 0; seed <= 40; ++seed) {
      std::mt19937_64 random(seed);
      const RandomCase drawn = random_case(random, {name}, 1);
      if (drawn.module->steps.empty()) continue;
      exports_as_onnx(drawn, temp / "a.onnx", counts);
      if (++drawn_steps == kDraws) break;
    }
  }
  std::cout << counts.refused["ONNX"] << " steps rejected\n";
}

// Ensures that the random modules cover each new operator of the exporter.
TEST(RandomExports, CoverEveryOperatorOfTheTable) {
  const torch::NoGradGuard no_grad;
  const std::vector<std::string> all = names_of_steps();
  std::set<std::string> used;
  for (const std::string& step : all) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      std::mt19937_64 random(seed);
      const RandomCase drawn = random_case(random, {step}, /*length=*/1);
      if (drawn.module->steps.empty()) continue;
      Model model(drawn.module);
      const auto graph =
          trace(model, {drawn.input}).get_method("forward").graph();
      for (const torch::jit::Node* node : graph->nodes()) {
        used.insert(onnx::operator_name(*node));
      }
    }
  }
  for (const auto& [name, function] : onnx::operators()) {
    EXPECT_TRUE(used.contains(name)) << name;
  }
}

}  // namespace
}  // namespace tern::random_export_test
