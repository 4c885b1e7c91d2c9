// %% [markdown]
// # From training to prediction
//
// Trains a small network on threes and sevens and exports it as one file. A
// program that has only this file then predicts single images, a folder, and
// concurrent requests from eight threads.

// %%
#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"
#include "support/synthetic_digits.h"

// %% [markdown]
// ## The training program

// %%
void train_and_export(
    const std::filesystem::path& images,
    const std::string& file) {
  auto data = tern::ImageDataBunch::from_folder(images);
  auto learn = tern::Learner(
      data,
      tern::simple_cnn({3, 16, 16, 2}, {.batch_norm = true}),
      {.metrics = {tern::accuracy()}});
  learn.to_bf16().fit_one_cycle(1, 1e-2);
  // Writes the fp32 master weights, class names and preprocessing, and next to
  // this file a Python program that loads it.
  learn.export_model(file, {.python_loader = true});
}

// %% [markdown]
// ## Requests from many threads

// %%
// Eight threads submit requests; the queue serves several requests with each
// forward pass.
void ask_from_threads(
    const tern::Predictor& predictor,
    const std::vector<tern::FilePrediction>& files) {
  tern::PredictorQueue queue(
      predictor,
      {.max_batch = 32, .max_latency = std::chrono::milliseconds(2)});
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 8; ++first) {
    threads.emplace_back([&, first] {
      std::vector<std::future<tern::Prediction>> predictions;
      for (size_t i = first; i < files.size(); i += 8) {
        predictions.push_back(queue.submit(files[i].path));
      }
      for (auto& prediction : predictions) prediction.get();
    });
  }
  for (std::thread& thread : threads) thread.join();
  fmt::print(
      "8 threads made {} requests, {} forward passes served them\n",
      files.size(),
      queue.batches());
}

// %%
int main(int argc, char** argv) try {
  std::string file = "threes_and_sevens.safetensors";
  tern::examples::Options app(
      "Trains and exports a model, and predicts with the file");
  app.add_option("--file", file, "file for the model");
  app.read(argc, argv);

  // %%
  tern::seed_everything(42);
  const auto path = tern::examples::mnist_or_digits(tern::urls::mnist_sample);
  train_and_export(path, file);

  // %% [markdown]
  // ## The predicting program
  //
  // This program needs neither the dataset nor a Learner.

  // %%
  const auto predictor = tern::Predictor::load(file);
  const tern::ModelCard& card = predictor.card();
  fmt::print("{} with {}", card.architecture.name, card.architecture.options);
  for (const auto& metric : card.metrics) {
    fmt::print(", {} {:.4f}", metric.name, metric.value);
  }
  fmt::print("\n");

  // %% [markdown]
  // ## Files and folders

  // %%
  int64_t right = 0, all = 0;
  for (const std::string& label : card.classes) {
    const auto files = predictor.predict_folder(path / "valid" / label);
    for (const tern::FilePrediction& file : files) {
      right += file.prediction.label == label;
      ++all;
    }
    const tern::Prediction one = predictor.predict(files.front().path);
    fmt::print(
        "{} is a {}\n",
        std::filesystem::path(files.front().path).filename().string(),
        tern::to_string(one));
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(all);
  fmt::print("{} of {} files are correct: {:.4f}\n", right, all, accuracy);

  // %%
  ask_from_threads(predictor, predictor.predict_folder(path / "valid" / "7"));
  return accuracy > 0.9 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
