#include "tern/callbacks/tensorboard.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/tensorboard_event.h"
#include "tern/data/formats/image_header.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/recorder.h"

namespace tern {

namespace {

constexpr size_t kMaxPending = 256 << 10;

// TensorBoard takes the files of a folder in the order of their names.
std::filesystem::path new_file(const std::filesystem::path& folder) {
  static std::atomic<int64_t> count = 0;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return folder / fmt::format(
                      "events.out.tfevents.{:010}.{}.{}.{}",
                      static_cast<int64_t>(unix_time()),
                      host,
                      ::getpid(),
                      count++);
}

tensorboard::Moment now(int64_t step) {
  return {unix_time(), step};
}

// TensorFlow's buckets: 0, and powers of 1.1 from 1e-12 to 1e20 on both sides.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double v = 1e-12; v < 1e20; v *= 1.1) positive.push_back(v);
    positive.push_back(std::numeric_limits<double>::max());
    std::vector<double> all;
    for (auto it = positive.rbegin(); it != positive.rend(); ++it) {
      all.push_back(-*it);
    }
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
  }();
  return limits;
}

// [limits + 4] kDouble on the CPU: how many values lie in each bucket, then
// min, max, sum and sum of squares. One read from the device.
torch::Tensor count(const torch::Tensor& values) {
  const std::vector<double>& limits = bucket_limits();
  const torch::Tensor x = values.detach().flatten().to(torch::kDouble);
  const torch::Tensor is_number = x.isfinite().to(torch::kDouble);
  const torch::Tensor y = x.nan_to_num(0, 0, 0);
  const torch::Tensor edges =
      torch::tensor(limits, torch::kDouble).to(y.device());
  torch::Tensor counts =
      torch::zeros(static_cast<int64_t>(limits.size()), y.options());
  counts.scatter_add_(0, torch::bucketize(y, edges), is_number);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const torch::Tensor is_left_out = is_number == 0;
  return torch::cat({counts,
                     torch::stack(
                         {y.masked_fill(is_left_out, kInf).min(),
                          y.masked_fill(is_left_out, -kInf).max(),
                          y.sum(),
                          y.square().sum()})})
      .cpu();
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(
    const std::filesystem::path& folder,
    Sink sink)
    : TensorBoardWriter(LogFile(
          "TensorBoard",
          new_file(folder),
          /*append=*/false,
          sink ? std::move(sink) : terminal())) {}

TensorBoardWriter::TensorBoardWriter(LogFile file) : file_(std::move(file)) {
  if (!file_.is_empty()) return;
  add(tensorboard::version_event(unix_time()));
  flush();
}

std::unique_ptr<TensorBoardWriter> TensorBoardWriter::go_on(
    const std::filesystem::path& folder,
    const StateDict& place,
    const Sink& sink) {
  const torch::Tensor* const name = place.find("file");
  if (!name) return nullptr;
  const uint8_t* const bytes = name->const_data_ptr<uint8_t>();
  const std::filesystem::path saved(std::string(bytes, bytes + name->numel()));
  const std::filesystem::path path = folder / saved.filename();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nullptr;
  LogFile file("TensorBoard", path, /*append=*/true, sink);
  if (!file.go_back_to(place)) return nullptr;
  return std::unique_ptr<TensorBoardWriter>(
      new TensorBoardWriter(std::move(file)));
}

StateDict TensorBoardWriter::place() {
  flush();
  StateDict place = file_.place();
  if (place.is_empty()) return place;
  const std::string name = file().filename();
  const torch::Tensor bytes =
      torch::empty({static_cast<int64_t>(name.size())}, torch::kByte);
  std::copy(name.begin(), name.end(), bytes.mutable_data_ptr<uint8_t>());
  place.insert("file", bytes);
  return place;
}

void TensorBoardWriter::add(const std::string& event) {
  pending_ += tensorboard::record(event);
  if (pending_.size() >= kMaxPending) flush();
}

void TensorBoardWriter::flush() {
  if (!pending_.empty()) file_.write(pending_);
  pending_.clear();
}

void TensorBoardWriter::add_scalar(
    const std::string& tag,
    double value,
    int64_t step) {
  add(tensorboard::scalar_event(now(step), tag, value));
}

void TensorBoardWriter::add_histogram(
    const std::string& tag,
    const torch::Tensor& values,
    int64_t step) {
  TORCH_CHECK_VALUE(
      values.defined() && values.is_floating_point() && values.numel() > 0,
      fmt::format(
          "[TensorBoardWriter::add_histogram] \"{}\" has no values or none "
          "that are floating; expected at least one.",
          tag));
  const std::vector<double>& limits = bucket_limits();
  const torch::Tensor read = count(values);
  const double* const counts = read.const_data_ptr<double>();
  const double* const sums = counts + limits.size();
  // From the bucket before the first that counts something.
  size_t begin = 0, end = limits.size();
  while (begin < end && counts[begin] == 0) ++begin;
  while (end > begin && counts[end - 1] == 0) --end;
  if (begin == end) return;  // NaN and nothing else
  if (begin > 0) --begin;
  double total = 0;
  for (size_t i = begin; i < end; ++i) total += counts[i];
  add(tensorboard::histogram_event(
      now(step),
      tag,
      {.min = sums[0],
       .max = sums[1],
       .count = total,
       .sum = sums[2],
       .sum_squares = sums[3],
       .limits = {limits.data() + begin, end - begin},
       .counts = {counts + begin, end - begin}}));
}

void TensorBoardWriter::add_image(
    const std::string& tag,
    std::span<const uint8_t> png,
    int64_t step) {
  constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
  const std::string_view bytes(
      reinterpret_cast<const char*>(png.data()),
      png.size());
  TORCH_CHECK_VALUE(
      bytes.starts_with(kSignature),
      fmt::format(
          "[TensorBoardWriter::add_image] the {} bytes of \"{}\" are no PNG "
          "file; expected what encode_png makes.",
          png.size(),
          tag));
  const ImageHeader header = read_image_header(png, tag);
  add(tensorboard::image_event(
      now(step),
      tag,
      bytes,
      header.width,
      header.height,
      header.channels));
}

void TensorBoardWriter::add_text(
    const std::string& tag,
    const std::string& text,
    int64_t step) {
  add(tensorboard::text_event(now(step), tag + "/text_summary", text));
}

TensorBoard::TensorBoard(Options options) : options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      options_.every >= 1,
      fmt::format(
          "[TensorBoard] every is {}; expected a number of batches >= 1.",
          options_.every));
}

TensorBoardWriter& TensorBoard::writer() {
  TORCH_CHECK(
      writer_,
      "[TensorBoard::writer] there is no file before the first fit; call it "
      "in or after a fit.");
  return *writer_;
}

void TensorBoard::on_train_begin(Learner& learn) {
  losses_.begin();
  const auto resumed = take_resumed_log(learn, *this);
  if (writer_ && (!resumed || resumed->is_empty())) return;
  writer_.reset();  // what it holds goes before the cut
  const std::filesystem::path folder = learn.options().path / options_.folder;
  const Sink& sink = learn.options().sink;
  if (resumed) writer_ = TensorBoardWriter::go_on(folder, *resumed, sink);
  if (!writer_) writer_ = std::make_unique<TensorBoardWriter>(folder, sink);
}

void TensorBoard::on_epoch_begin(Learner& learn) {
  epochs_.on_epoch_begin(learn);
}

void TensorBoard::on_batch_begin(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  if (!writer_) on_train_begin(learn);  // added while the fit ran
  losses_.on_batch_begin(learn);
}

void TensorBoard::write_batches(Learner& learn) {
  losses_.each(learn, [&](const BatchValues& batch) {
    if (batch.iteration % options_.every) return;
    const auto add = [&](const char* tag, double value) {
      writer_->add_scalar(tag, value, batch.iteration);
    };
    add("train/loss", batch.loss);
    add("train/smooth_loss", batch.smooth_loss);
    add("train/lr", batch.lr);
    add("train/momentum", batch.momentum);
  });
}

void TensorBoard::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (state.training && writer_) write_batches(learn);
}

void TensorBoard::on_epoch_end(Learner& learn) {
  if (!writer_) on_train_begin(learn);
  epochs_.on_epoch_end(learn);
  write_news(learn);
  writer_->flush();
}

StateDict TensorBoard::log_state(Learner& learn) {
  if (!writer_) return StateDict();
  write_news(learn);
  return writer_->place();
}

void TensorBoard::write_news(Learner& learn) {
  write_batches(learn);
  epochs_.each(learn, [&](const EpochRecord& epoch) {
    write_epoch(learn, epoch);
  });
}

void TensorBoard::write_epoch(Learner& learn, const EpochRecord& epoch) {
  const TrainState& state = learn.state();
  const auto add = [&](const std::string& tag, double value) {
    if (!std::isnan(value)) writer_->add_scalar(tag, value, state.iteration);
  };
  add("train/epoch_loss", epoch.train_loss);
  add("valid/loss", epoch.valid_loss);
  for (const MetricValue& metric : epoch.metrics) {
    add("valid/" + metric.name, metric.value);
  }
  if (options_.histograms) {
    for (const ModelTensor& parameter : learn.model().parameters()) {
      writer_->add_histogram(
          "weights/" + parameter.name,
          parameter.tensor,
          state.iteration);
    }
  }
}

void TensorBoard::on_train_end(Learner&) {
  if (writer_) writer_->flush();
}

}  // namespace tern
