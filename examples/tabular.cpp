// %% [markdown]
// # A table of houses
//
// Predicts the price of a house from a table of categories, numbers and empty
// cells, with entity embeddings like fastai's `tabular_learner`. Tern is a
// library for images and has no layers for tables; this program contains all
// the code that a table needs.

// %%
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tern/tern.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "options.h"

using Names = std::vector<std::string>;

// %% [markdown]
// ## The table
//
// The houses have two columns of categories and three of numbers. One cell in
// twenty is empty, except in the column `kind`. The price depends on the
// district, the kind and the age, and grows with the area.

// %%
const Names kCategories = {"district", "kind"};
const Names kNumbers = {"area", "rooms", "built"};
const char* const kTarget = "price";

void write_houses(const std::filesystem::path& file, int64_t count) {
  std::mt19937 rng(42);
  const auto random = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(rng);
  };
  const std::map<std::string, double> per_area =
      {{"harbor", 9}, {"hill", 7}, {"mill", 4}, {"old town", 8}, {"park", 6}};
  const Names kinds = {"flat", "house", "villa"};
  std::ofstream out(file);
  out << "district,kind,area,rooms,built,price\n";
  for (int64_t i = 0; i < count; ++i) {
    auto district = per_area.begin();
    std::advance(district, rng() % per_area.size());
    const size_t kind = rng() % kinds.size();
    const double area = random(30, 90) * (1 + 0.5 * static_cast<double>(kind));
    const double built = std::floor(random(1900, 2020));
    const double price = area * district->second * (kind == 2 ? 1.3 : 1) *
                             (built > 1990 ? 1.2 : 1) +
                         random(-20, 20);
    const auto cell = [&](const std::string& text) {
      return random(0, 1) < 0.05 ? std::string() : text;
    };
    out << fmt::format(
        "{},{},{},{},{},{:.1f}\n",
        cell(district->first),
        kinds[kind],
        cell(fmt::format("{:.0f}", area)),
        cell(fmt::format("{:.0f}", area / 25 + 1)),
        cell(fmt::format("{:.0f}", built)),
        price);
  }
}

// %% [markdown]
// ## Encoding the cells
//
// A category is encoded as its position, from 1, in the sorted values of the
// training rows. 0 encodes an empty cell or an unknown value. An empty number
// becomes NaN.

// %%
Names values_of(const tern::CsvTable& table, const std::string& column) {
  Names values;
  for (const Names& row : table.rows)
    values.push_back(row[table.column(column)]);
  return values;
}

Names vocabulary_of(const Names& values) {
  Names sorted;
  std::ranges::copy_if(
      values,
      std::back_inserter(sorted),
      [](const std::string& value) { return !value.empty(); });
  std::ranges::sort(sorted);
  sorted.erase(std::ranges::unique(sorted).begin(), sorted.end());
  return sorted;
}

Names lines_of(const std::string& text) {
  Names lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

int64_t code_of(const Names& vocabulary, const std::string& value) {
  const auto at = std::ranges::find(vocabulary, value);
  return at == vocabulary.end() ? 0 : at - vocabulary.begin() + 1;
}

float number_of(const std::string& cell) {
  return cell.empty() ? std::numeric_limits<float>::quiet_NaN()
                      : std::stof(cell);
}

// %% [markdown]
// ## The network
//
// Each category has an embedding, with fastai's rule for its size. The network
// prepares its inputs with statistics of the training rows, which it keeps in
// buffers: it replaces an empty cell with the median, adds a flag for empty
// cells, and normalizes each column. It also scales its output back to prices.
// A program that loads the model therefore passes the raw numbers of the table.

// %%
struct TabularImpl : torch::nn::Module {
  /// \param values   Number of values in each column of categories, without
  ///                 the code 0.
  /// \param numbers  Numbers of the training rows, [N, columns].
  /// \param prices   Prices of the training rows, [N].
  TabularImpl(
      const std::vector<int64_t>& values,
      const torch::Tensor& numbers,
      const torch::Tensor& prices) {
    medians = register_buffer("medians", std::get<0>(numbers.nanmedian(0)));
    means = register_buffer("means", numbers.nanmean(0));
    const torch::Tensor squares = (numbers - means).square().nanmean(0);
    stddevs = register_buffer("stddevs", squares.sqrt() + 1e-7);
    mean_price = register_buffer("mean_price", prices.mean());
    stddev_price = register_buffer("stddev_price", prices.std());
    int64_t width = 2 * numbers.size(1);
    for (const int64_t count : values) {
      const int64_t size = std::min<int64_t>(
          600,
          std::lround(1.6 * std::pow(static_cast<double>(count + 1), 0.56)));
      embeddings->push_back(torch::nn::Embedding(count + 1, size));
      width += size;
    }
    register_module("embeddings", embeddings);
    layers = register_module(
        "layers",
        torch::nn::Sequential(
            torch::nn::Linear(width, 200),
            torch::nn::ReLU(),
            torch::nn::BatchNorm1d(200),
            torch::nn::Linear(200, 100),
            torch::nn::ReLU(),
            torch::nn::BatchNorm1d(100),
            torch::nn::Linear(100, 1)));
  }

  /// \param categories  [N, categories] kLong.
  /// \param numbers     [N, numbers] kFloat, NaN for an empty cell.
  torch::Tensor forward(
      const torch::Tensor& categories,
      const torch::Tensor& numbers) {
    const torch::Tensor is_missing = numbers.isnan();
    const torch::Tensor filled = torch::where(is_missing, medians, numbers);
    tern::Tensors x = {
        (filled - means) / stddevs,
        is_missing.to(filled.dtype())};
    for (size_t i = 0; i < embeddings->size(); ++i) {
      x.push_back(embeddings[i]->as<torch::nn::Embedding>()->forward(
          categories.select(1, static_cast<int64_t>(i))));
    }
    const torch::Tensor price = layers->forward(torch::cat(x, 1)).squeeze(1);
    return price * stddev_price + mean_price;
  }

  torch::Tensor medians, means, stddevs, mean_price, stddev_price;
  torch::nn::ModuleList embeddings;
  torch::nn::Sequential layers{nullptr};
};
TORCH_MODULE(Tabular);

int main(int argc, char** argv) try {
  std::string file = "houses.csv";
  int64_t houses = 4000, epochs = 10;
  tern::examples::Options app(
      "Trains a network that predicts prices from a table");
  app.add_option("--table", file, "file for the generated table");
  app.add_number("--houses", houses, 100, 10'000'000, "rows");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.read(argc, argv);
  torch::manual_seed(42);
  write_houses(file, houses);

  // %%
  const tern::CsvTable table = tern::read_csv(file);
  const auto rows = static_cast<int64_t>(table.rows.size());
  const int64_t train_rows = rows * 4 / 5;  // the rows are in random order
  std::vector<int64_t> counts;
  std::map<std::string, std::string> vocabularies;  // for the model's file
  torch::Tensor categories = torch::empty(
      {rows, static_cast<int64_t>(kCategories.size())},
      torch::kLong);
  for (size_t c = 0; c < kCategories.size(); ++c) {
    const Names values = values_of(table, kCategories[c]);
    const Names vocabulary =
        vocabulary_of({values.begin(), values.begin() + train_rows});
    std::vector<int64_t> codes;
    for (const std::string& value : values) {
      codes.push_back(code_of(vocabulary, value));
    }
    categories.select(1, static_cast<int64_t>(c)).copy_(torch::tensor(codes));
    counts.push_back(static_cast<int64_t>(vocabulary.size()));
    vocabularies[kCategories[c]] =
        fmt::format("{}", fmt::join(vocabulary, "\n"));
  }
  const auto numbers_in = [&](const std::string& column) {
    std::vector<float> numbers;
    for (const std::string& cell : values_of(table, column)) {
      numbers.push_back(number_of(cell));
    }
    return torch::tensor(numbers);
  };
  tern::Tensors columns;
  for (const std::string& column : kNumbers)
    columns.push_back(numbers_in(column));
  const torch::Tensor numbers = torch::stack(columns, 1);
  const torch::Tensor prices = numbers_in(kTarget);

  // %%
  const auto part = [&](int64_t begin, int64_t end) {
    const auto of = [&](const torch::Tensor& x) {
      return x.slice(0, begin, end);
    };
    return std::make_shared<tern::TensorDataset>(
        tern::Tensors{of(categories), of(numbers)},
        tern::Tensors{of(prices)});
  };
  tern::DataBunch data = tern::DataBunch::create(
      part(0, train_rows),
      part(train_rows, rows),
      {.batch_size = 64, .workers = 0});
  data.outputs = {{.kind = tern::TargetKind::number, .names = {kTarget}}};
  tern::Learner learn(
      data,
      Tabular(
          counts,
          numbers.slice(0, 0, train_rows),
          prices.slice(0, 0, train_rows)),
      {.loss = torch::nn::MSELoss(), .metrics = {tern::mae()}, .seed = 42});
  learn.fit_one_cycle(epochs, 1e-2);

  // %% [markdown]
  // ## The model in one file
  //
  // The file contains the network, its medians and means, and the vocabularies.

  // %%
  learn.export_model("houses.safetensors", {.metadata = vocabularies});
  const auto predictor =
      tern::Predictor::load("houses.safetensors", {.trusted = true});
  const auto price_of = [&](const Names& kinds,
                            const std::vector<float>& cells) {
    std::vector<int64_t> codes;
    for (size_t c = 0; c < kCategories.size(); ++c) {
      const std::string& text = predictor.card().metadata.at(kCategories[c]);
      codes.push_back(code_of(lines_of(text), kinds[c]));
    }
    const tern::Tensors inputs = {torch::tensor(codes), torch::tensor(cells)};
    return predictor.predict(inputs).numbers.at(0);
  };
  const float unknown = number_of("");
  const double villa = price_of({"harbor", "villa"}, {120, 6, 2010});
  fmt::print("a villa at the harbor costs {:.0f}\n", villa);
  fmt::print(
      "a villa of unknown age costs {:.0f}\n",
      price_of({"harbor", "villa"}, {120, 6, unknown}));

  const double error = learn.validate().metrics.at(0).value;
  const double of_mean = (prices - prices.mean()).abs().mean().item<double>();
  fmt::print(
      "mean error {:.1f}; {:.1f} for predicting the mean price\n",
      error,
      of_mean);
  if (epochs >= 10 && houses >= 4000 && error > of_mean / 4) {
    fmt::print(stderr, "error: the network has not learned the prices\n");
    return 1;
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
