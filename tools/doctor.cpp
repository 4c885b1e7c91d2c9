// ./dev doctor: describes this machine and reports problems, each as a sentence
// with its remedy. Exits with 1 if there is a problem.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "tern/data/download/cache_folder.h"
#include "tern/data/download/untar_data.h"
#include "tern/data/support/memory.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/load_cuda.h"
#include "tern/tools/blas.h"
#include "tern/version.h"

#ifdef TERN_HAS_VISION
#include <opencv2/core.hpp>
#include <opencv2/core/utility.hpp>

#include "tern/callbacks/diagnose/step_time.h"
#include "tern/data/dataset.h"
#include "tern/learner/learner.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/models/cnn/resnet.h"
#endif

namespace fs = std::filesystem;

namespace tern::tools {
namespace {

std::vector<std::string> problems;

void problem(std::string sentence) {
  problems.push_back(std::move(sentence));
}

void line(std::string_view name, std::string_view value) {
  fmt::print("{:<11} {}\n", name, value);
}

std::string library_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname ? info.dli_fname : "?";
}

// ---- Versions ----

void report_versions() {
  line("tern", TERN_VERSION_STRING " (" TERN_BUILD_TYPE_TEXT ")");
  line(
      "libtorch",
      fmt::format(
          "{} in {}",
          TORCH_VERSION,
          fs::path(library_of(reinterpret_cast<void*>(&at::get_num_threads)))
              .parent_path()
              .string()));
  line("compiler", TERN_COMPILER_TEXT);
  line("cmake", TERN_CMAKE_TEXT);
  line("toolkit", TERN_TOOLKIT_TEXT);
#ifdef TERN_HAS_VISION
  line("opencv", cv::getVersionString());
  if (cv::getVersionString() != CV_VERSION) {
    problem(fmt::format(
        "OpenCV's headers have version {} and its libraries {}: install one "
        "version, then run rm -rf build && ./dev build.",
        CV_VERSION,
        cv::getVersionString()));
  }
#endif
}

// ---- The processor ----

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string text; std::getline(info, text);) {
    if (text.starts_with("model name")) return text.substr(text.find(':') + 2);
  }
  return "unknown";
}

void report_cpu() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  line("cpu", fmt::format("{}, {} cores", cpu_model(), cores));
  line("features", "LibTorch uses " + at::get_cpu_capability());
  const char* variable = std::getenv("OMP_NUM_THREADS");
  line(
      "threads",
      fmt::format(
          "{} within an operation, {} between operations{}",
          at::get_num_threads(),
          at::get_num_interop_threads(),
          variable ? fmt::format(", OMP_NUM_THREADS={}", variable) : ""));
  if (at::get_num_threads() > cores) {
    problem(fmt::format(
        "An operation uses {} threads on {} cores, which is slower than one "
        "per core: unset OMP_NUM_THREADS or set it to {}.",
        at::get_num_threads(),
        cores,
        cores));
  }
}

// ---- The BLAS, and libraries that may be loaded twice ----

/// Measures one thread, since several would also measure other busy programs.
double matmul_gigaflops() {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const int64_t n = 256;
  const torch::Tensor a = torch::rand({n, n}), b = torch::rand({n, n});
  double best = 0;
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    torch::mm(a, b);
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    best = std::max(best, 2e-9 * n * n * n / seconds.count());
  }
  at::set_num_threads(threads);
  return best;
}

void report_blas() {
  torch::NoGradGuard no_grad;
  const std::string library = blas_library();
  line(
      "blas",
      fmt::format(
          "{:.0f} GFLOP/s per thread in a 256x256 matmul, sgemm_ of {}",
          matmul_gigaflops(),
          fs::path(library).filename().string()));
  if (!has_blas_of_libtorch()) {
    problem(fmt::format(
        "LibTorch calls the matrix product of {}, which can be 37 times "
        "slower: unset LD_PRELOAD, and in your own program link tern or "
        "LibTorch directly, before OpenCV.",
        library));
  }
}

/// Returns the files mapped into this process whose names start with `prefix`.
std::set<std::string> loaded_libraries(std::string_view prefix) {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string text; std::getline(maps, text);) {
    const size_t slash = text.find('/');
    if (slash == std::string::npos) continue;
    const fs::path file = text.substr(slash);
    if (file.filename().string().starts_with(prefix)) {
      files.insert(file.string());
    }
  }
  return files;
}

void report_duplicates() {
  std::set<std::string> openmp;
  for (const char* prefix : {"libgomp", "libomp", "libiomp5"}) {
    openmp.merge(loaded_libraries(prefix));
  }
  line("openmp", fmt::format("{}", fmt::join(openmp, ", ")));
  if (openmp.size() > 1) {
    problem(fmt::format(
        "Two OpenMP libraries compete for the cores, {}: build with g++, and "
        "unset LD_PRELOAD.",
        fmt::join(openmp, " and ")));
  }
}

// ---- The GPU ----

bool pci_bus_has_nvidia_gpu() {
  const auto first_word = [](const fs::path& path) {
    std::string word;
    std::ifstream(path) >> word;
    return word;
  };
  std::error_code none;
  for (const auto& device :
       fs::directory_iterator("/sys/bus/pci/devices", none)) {
    // Class 03xxxx is a display controller; data center GPUs are 0302xx.
    if (first_word(device.path() / "vendor") == "0x10de" &&
        first_word(device.path() / "class").starts_with("0x03")) {
      return true;
    }
  }
  return false;
}

void report_cuda() {
  const std::unique_ptr<std::FILE, decltype(&pclose)> smi(
      popen(
          "nvidia-smi --query-gpu=driver_version,name,memory.total "
          "--format=csv,noheader 2>&1",
          "r"),
      pclose);
  // "580.65.06, NVIDIA H200, 143771 MiB"
  std::vector<std::string> gpus;
  std::string words;
  for (char text[256]; smi && std::fgets(text, sizeof text, smi.get());) {
    words += text;
    if (std::atoi(text) > 0) gpus.emplace_back(text, std::strcspn(text, "\n"));
  }
  for (const std::string& gpu : gpus) line("gpu", "driver " + gpu);
  const bool is_usable = load_cuda();
  if (is_usable && gpus.empty())
    line("gpu", "found by CUDA but not by nvidia-smi");
  if (is_usable) return;
  if (gpus.empty() && !pci_bus_has_nvidia_gpu()) {
    line("gpu", "none; the CPU is used");
  } else if (gpus.empty()) {
    problem(fmt::format(
        "There is an NVIDIA GPU but no working driver ({}): install driver "
        "580 or newer from your distribution, then restart; start a container "
        "with --gpus all.",
        words.substr(0, words.find('\n'))));
  } else if (std::atoi(gpus[0].c_str()) < 580) {
    problem(
        "The NVIDIA driver is too old for LibTorch's CUDA 13: install driver "
        "580 or newer. Until then Tern trains on the CPU.");
  } else if (const char* seen = std::getenv("CUDA_VISIBLE_DEVICES")) {
    problem(fmt::format(
        "LibTorch cannot use a GPU while CUDA_VISIBLE_DEVICES is \"{}\": unset "
        "it, or set it to the GPUs to use, such as 0.",
        seen));
  } else {
    problem(
        "The driver lists a GPU that LibTorch cannot use: see the warning "
        "above, and run ./dev build after rm -rf ~/.cache/tern/torch-2.11.0.");
  }
}

// ---- Memory, disk, data ----

void report_memory() {
  constexpr double kGigabyte = 1 << 30;
  const double available =
      static_cast<double>(available_memory(torch::kCPU)) / kGigabyte;
  line("memory", fmt::format("{:.1f} GB available", available));
  if (available < 2) {
    problem(
        "Less than 2 GB of memory is available, too little to compile a file "
        "that includes LibTorch: close other programs or add swap space.");
  }
}

void report_disk() {
  const char* home = std::getenv("HOME");
  const fs::path folder = home ? home : "/";
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) {
    problem(fmt::format(
        "The home folder {} cannot be read ({}): set HOME to a readable "
        "folder.",
        folder.string(),
        error.message()));
    return;
  }
  const double free = static_cast<double>(space.available) / (1 << 30);
  line("disk", fmt::format("{:.0f} GB free in {}", free, folder.string()));
  if (free < 5) {
    problem(fmt::format(
        "Less than 5 GB is free in {}: remove files, for instance with "
        "ccache --clear or pip cache purge.",
        folder.string()));
  }
}

/// Reports what failed downloads have left: generated data of the examples, or
/// partial files.
void report_downloads() {
  const fs::path cache = cache_folder({});
  line(
      "data",
      fmt::format(
          "TERN_DATA is not set: datasets are downloaded to {} on first use",
          cache.string()));
  std::error_code none;
  for (const DatasetUrl& dataset : {urls::mnist_sample, urls::mnist}) {
    const fs::path generated = cache / "generated" / dataset.name;
    if (!fs::exists(generated, none) ||
        fs::exists(cache / dataset.name, none)) {
      continue;
    }
    problem(fmt::format(
        "The download of {} has failed, so the examples use generated digits: "
        "remove {} to try again, or set TERN_DATA to a folder with {}.",
        dataset.name,
        generated.string(),
        dataset.files[0].name()));
  }
  for (const auto& entry : fs::directory_iterator(cache / "archives", none)) {
    if (entry.path().extension() != ".part") continue;
    problem(fmt::format(
        "The download of {} has stopped after {} bytes: the next program that "
        "needs it resumes the download. To download it again, run rm {}.",
        entry.path().stem().string(),
        entry.file_size(none),
        entry.path().string()));
  }
}

void report_data() {
  const char* data = std::getenv("TERN_DATA");
  if (!data) return report_downloads();
  std::error_code none;
  line("data", fmt::format("TERN_DATA={}", data));
  if (!fs::is_directory(data, none)) {
    problem(fmt::format(
        "TERN_DATA is {}, which is not a folder: set it to the folder of the "
        "datasets, or unset it.",
        data));
  } else if (!fs::exists(fs::path(data) / "mnist_sample.tgz", none)) {
    problem(fmt::format(
        "TERN_DATA is {}, which does not contain mnist_sample.tgz: set it to "
        "the folder of the datasets, or unset it.",
        data));
  }
}

// ---- Training in bfloat16 ----

/// Reports whether training in bfloat16 is faster than in fp32.
void report_bfloat16() {
  if (!multiplies_bfloat16()) {
    line("bfloat16", "no instructions for it: train in fp32");
    return;
  }
#ifdef TERN_HAS_VISION
  const int64_t batch_size = 16, size = 64;
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(
          Tensors{torch::rand({batch_size, 3, size, size})},
          Tensors{torch::zeros({batch_size}, torch::kLong)}),
      nullptr,
      {.batch_size = batch_size, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, resnet18({.num_classes = 10}));
  const double fp32 = step_milliseconds(learn).value();
  learn.to_bf16();
  const double bf16 = step_milliseconds(learn).value();
  line(
      "bfloat16",
      fmt::format(
          "{}: a training step of ResNet-18 with {} images of {} x {} pixels "
          "takes {:.3g} ms, in fp32 {:.3g} ms",
          is_clearly_shorter(bf16, fp32) ? "faster" : "not faster",
          batch_size,
          size,
          size,
          bf16,
          fp32));
#else
  line("bfloat16", "this processor has instructions for it");
#endif
}

int run() {
  report_versions();
  report_cpu();
  report_blas();
  report_duplicates();
  report_cuda();
  report_memory();
  report_disk();
  report_data();
  // With one of the problems above, training might crash.
  if (problems.empty()) report_bfloat16();
  fmt::print("\n");
  for (const std::string& sentence : problems) {
    fmt::print("problem: {}\n", sentence);
  }
  if (problems.empty()) fmt::print("No problem found.\n");
  return problems.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tern::tools

int main() try { return tern::tools::run(); } catch (const c10::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what_without_backtrace());
  return 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
