#include "tern/callbacks/logging/tensorboard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <concepts>
#include <limits>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/data/formats/samples/image_header.h"
#include "tern/kernels/check.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

// ---- Event files: TensorFlow's TFRecord framing around protocol buffers of
// type tensorflow.Event (tensorflow/core/util/event.proto,
// tensorflow/core/framework/summary.proto) ----

template <class T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// CRC-32C (Castagnoli), masked as in TFRecord, where a checksum is stored next
// to its data.
std::string masked_crc(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) {
        crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
      }
      table[i] = crc;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  }
  crc = ~crc;
  return little_endian(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

// Writes a protocol buffer, field by field.
class Message {
 public:
  Message& integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real(int field, std::floating_point auto value) {
    tag(field, sizeof value == sizeof(double) ? 1 : 5);
    bytes_ += little_endian(value);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& reals(int field, std::span<const double> values) {
    return bytes(
        field,
        {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  const std::string& str() const { return bytes_; }

 private:
  void tag(int field, int wire_type) {
    varint(static_cast<uint64_t>(field << 3 | wire_type));
  }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>(value | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// ---- Histograms ----

// TensorFlow's buckets: 0, and powers of 1.1 from 1e-12 to 1e20 with both
// signs.
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

// Returns [limits + 4] kDouble on the CPU: the number of finite values in each
// bucket, then their min, max, sum and sum of squares. Reads from the device
// once.
torch::Tensor count(const torch::Tensor& values) {
  const torch::Tensor x = values.detach().flatten().to(torch::kDouble);
  const torch::Tensor is_finite = x.isfinite();
  const torch::Tensor y = x.nan_to_num(0, 0, 0);
  const torch::Tensor edges =
      torch::tensor(bucket_limits(), torch::kDouble).to(y.device());
  const torch::Tensor counts = torch::zeros_like(edges).scatter_add_(
      0,
      torch::bucketize(y, edges),
      is_finite.to(torch::kDouble));
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return torch::cat({counts,
                     torch::stack(
                         {torch::where(is_finite, y, kInf).min(),
                          torch::where(is_finite, y, -kInf).max(),
                          y.sum(),
                          y.square().sum()})})
      .cpu();
}

// TensorBoard reads the files of a folder in the order of their names.
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

// Opens the log file of a checkpoint and removes everything that was written
// after the checkpoint; null if the file is not in the folder or has different
// content.
std::shared_ptr<LogFile> reopened(
    const std::filesystem::path& folder,
    const StateDict* place,
    const Sink& sink) {
  const torch::Tensor* const name = place ? place->find("file") : nullptr;
  if (!name) return nullptr;
  const uint8_t* const bytes = name->const_data_ptr<uint8_t>();
  const std::filesystem::path saved(std::string(bytes, bytes + name->numel()));
  const std::filesystem::path path = folder / saved.filename();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nullptr;
  auto file =
      std::make_shared<LogFile>("TensorBoard", path, /*append=*/true, sink);
  return file->go_back_to(*place) ? file : nullptr;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(
    const std::filesystem::path& folder,
    const Sink& sink)
    : TensorBoardWriter(std::make_shared<LogFile>(
          "TensorBoard",
          new_file(folder),
          /*append=*/false,
          sink.or_terminal())) {}

TensorBoardWriter::TensorBoardWriter(std::shared_ptr<LogFile> file)
    : file_(std::move(file)) {
  if (!file_->is_empty()) return;
  add_record(Message().real(1, unix_time()).bytes(3, "brain.Event:2").str());
  flush();
}

// Event { wall_time = 1, step = 2, summary = 5 { value = 1 { tag = 1 } } }
void TensorBoardWriter::add(
    const std::string& tag,
    std::string_view value,
    int64_t step) {
  std::string tagged = Message().bytes(1, tag).str();
  tagged += value;
  add_record(Message()
                 .real(1, unix_time())
                 .integer(2, step)
                 .bytes(5, Message().bytes(1, tagged).str())
                 .str());
}

// A record: length, checksum of the length, event, checksum of the event.
void TensorBoardWriter::add_record(std::string_view event) {
  std::string record = little_endian<uint64_t>(event.size());
  record += masked_crc(record);
  record += event;
  record += masked_crc(event);
  file_->add(record);
}

// Value { simple_value = 2 }
void TensorBoardWriter::add_scalar(
    const std::string& tag,
    double value,
    int64_t step) {
  add(tag, Message().real(2, static_cast<float>(value)).str(), step);
}

// Value { histo = 5 { min = 1, max = 2, num = 3, sum = 4, sum_squares = 5,
// bucket_limit = 6, bucket = 7 } }
void TensorBoardWriter::add_histogram(
    const std::string& tag,
    const torch::Tensor& values,
    int64_t step) {
  TERN_CHECK_VALUE(
      values.defined() && values.is_floating_point() && values.numel() > 0,
      "[TensorBoardWriter::add_histogram] \"{}\" has no values, or values that "
      "are not floating-point; expected at least one floating-point value.",
      tag);
  const std::vector<double>& limits = bucket_limits();
  const torch::Tensor read = count(values);
  const double* const counts = read.const_data_ptr<double>();
  const double* const sums = counts + limits.size();
  // Starts one bucket before the first nonempty one.
  size_t begin = 0, end = limits.size();
  while (begin < end && counts[begin] == 0) ++begin;
  while (end > begin && counts[end - 1] == 0) --end;
  if (begin == end) return;  // no finite value
  if (begin > 0) --begin;
  double total = 0;
  for (size_t i = begin; i < end; ++i) total += counts[i];
  Message histogram;
  histogram.real(1, sums[0])
      .real(2, sums[1])
      .real(3, total)
      .real(4, sums[2])
      .real(5, sums[3])
      .reals(6, {limits.data() + begin, end - begin})
      .reals(7, {counts + begin, end - begin});
  add(tag, Message().bytes(5, histogram.str()).str(), step);
}

// Value { image = 4 { height = 1, width = 2, colorspace = 3,
// encoded_image_string = 4 } }
void TensorBoardWriter::add_image(
    const std::string& tag,
    std::span<const uint8_t> png,
    int64_t step) {
  constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
  const std::string_view bytes(
      reinterpret_cast<const char*>(png.data()),
      png.size());
  TERN_CHECK_VALUE(
      bytes.starts_with(kSignature),
      "[TensorBoardWriter::add_image] the {} bytes of \"{}\" are not a PNG "
      "file; expected the result of encode_png.",
      png.size(),
      tag);
  const ImageHeader header = read_image_header(png, tag);
  Message image;
  image.integer(1, header.height)
      .integer(2, header.width)
      .integer(3, header.channels)
      .bytes(4, bytes);
  add(tag, Message().bytes(4, image.str()).str(), step);
}

// Value { tensor = 8 { dtype = 1, tensor_shape = 2 { dim = 2 { size = 1 } },
// string_val = 8 }, metadata = 9 { plugin_data = 1 { plugin_name = 1 } } }
void TensorBoardWriter::add_text(
    const std::string& tag,
    const std::string& text,
    int64_t step) {
  constexpr int kString = 7;
  const Message dim = Message().integer(1, 1);
  Message tensor;
  tensor.integer(1, kString)
      .bytes(2, Message().bytes(2, dim.str()).str())
      .bytes(8, text);
  const Message plugin = Message().bytes(1, "text");
  add(tag + "/text_summary",
      Message()
          .bytes(8, tensor.str())
          .bytes(9, Message().bytes(1, plugin.str()).str())
          .str(),
      step);
}

TensorBoard::TensorBoard(Options options)
    : Logger("TensorBoard", options.every, /*least=*/1),
      options_(std::move(options)) {
  check_at_least("TensorBoard", "histogram_every", options_.histogram_every, 0);
}

TensorBoardWriter& TensorBoard::writer() {
  TORCH_CHECK(
      writer_,
      "[TensorBoard::writer] there is no event file before the first fit; call "
      "writer() during or after a fit.");
  return *writer_;
}

std::shared_ptr<LogFile> TensorBoard::open(
    Learner& learn,
    const StateDict* resumed) {
  writer_.reset();
  const std::filesystem::path folder = learn.options().path / options_.folder;
  const Sink& sink = learn.options().sink;
  if (auto file = reopened(folder, resumed, sink)) {
    writer_.reset(new TensorBoardWriter(std::move(file)));
  } else {
    writer_ = std::make_unique<TensorBoardWriter>(folder, sink);
  }
  return writer_->file_;
}

void TensorBoard::write_batch(const BatchValues& batch) {
  const auto add = [&](const std::string& tag, double value) {
    writer_->add_scalar("batch/" + tag, value, batch.iteration);
  };
  add("loss", batch.loss);
  add("smooth_loss", batch.smooth_loss);
  add("lr", batch.lr);
  add("momentum", batch.momentum);
  // A logged value may have one of these names; its prefix makes it distinct,
  // as in JSON.
  for (const MetricValue& value : batch.logged) {
    writer_->add_scalar("logged/" + value.name, value.value, batch.iteration);
  }
}

void TensorBoard::write_epoch(Learner& learn, const EpochRecord& epoch) {
  const int64_t step = learn.state().iteration;
  const auto add = [&](const std::string& tag, double value) {
    if (!std::isnan(value)) writer_->add_scalar("epoch/" + tag, value, step);
  };
  add("train_loss", epoch.train_loss);
  add("valid_loss", epoch.valid_loss);
  for (const MetricValue& metric : epoch.metrics) {
    add(metric.name, metric.value);
  }
  add("seconds", epoch.seconds);
  if (options_.histograms && options_.histogram_every == 0) add_weights(learn);
}

bool TensorBoard::is_histogram_due(const TrainState& state) const {
  const int64_t every = options_.histogram_every;
  return every > 0 ? state.iteration % every == 0
                   : state.batch + 1 == state.batches;
}

void TensorBoard::on_batch_begin(Learner& learn) {
  Logger::on_batch_begin(learn);
  const TrainState& state = learn.state();
  if (options_.histograms && options_.histogram_every > 0 && state.training &&
      is_histogram_due(state)) {
    add_weights(learn);
  }
}

void TensorBoard::on_step(Learner& learn) {
  if (!is_histogram_due(learn.state())) return;
  for (const auto& [name, gradient] : learn.gradients()) {
    writer_->add_histogram(
        "gradients/" + name,
        gradient,
        learn.state().iteration);
  }
}

void TensorBoard::add_weights(Learner& learn) {
  for (const ModelTensor& parameter : learn.model().parameters()) {
    writer_->add_histogram(
        "weights/" + parameter.name,
        parameter.tensor,
        learn.state().iteration);
  }
}

OptionValues TensorBoard::option_values() const {
  return {
      {"folder", option_text(options_.folder)},
      {"every", option_text(options_.every)},
      {"histograms", option_text(options_.histograms)},
      {"gradient_histograms", option_text(options_.gradient_histograms)},
      {"histogram_every", option_text(options_.histogram_every)}};
}

}  // namespace tern
