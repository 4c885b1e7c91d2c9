#include "tern/callbacks/tensorboard_event.h"

#include <array>
#include <cstring>

namespace tern::tensorboard {

namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

// A checksum that is stored beside its data is masked, as TFRecord has it.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
std::string little_endian(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) {
    bytes += static_cast<char>(bits >> (8 * i));
  }
  return bytes;
}

// A protocol buffer that is being written, field by field.
class Message {
 public:
  Message& integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real(int field, double value) {
    tag(field, 1);
    bytes_ += little_endian(value);
    return *this;
  }
  Message& real32(int field, float value) {
    tag(field, 5);
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
    tag(field, 2);
    varint(values.size() * sizeof(double));
    for (const double value : values) bytes_ += little_endian(value);
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  void tag(int field, int wire_type) {
    varint(
        static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
  }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>(value | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Event { wall_time = 1, step = 2, summary = 5 { value = 1 } }
std::string event_of(Moment at, const Message& value) {
  Message event;
  event.real(1, at.wall_time)
      .integer(2, at.step)
      .bytes(5, Message().bytes(1, value.str()).str());
  return event.str();
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  }
  return ~crc;
}

std::string record(std::string_view event) {
  const std::string length = little_endian<uint64_t>(event.size());
  std::string bytes = length + little_endian(masked_crc(length));
  bytes += event;
  bytes += little_endian(masked_crc(event));
  return bytes;
}

std::string version_event(double wall_time) {
  return Message().real(1, wall_time).bytes(3, "brain.Event:2").str();
}

// Value { tag = 1, simple_value = 2 }
std::string scalar_event(Moment at, std::string_view tag, double value) {
  return event_of(
      at,
      Message().bytes(1, tag).real32(2, static_cast<float>(value)));
}

// Value { tag = 1, image = 4 { height = 1, width = 2, colorspace = 3,
// encoded_image_string = 4 } }
std::string image_event(
    Moment at,
    std::string_view tag,
    std::string_view png,
    int64_t width,
    int64_t height,
    int64_t channels) {
  Message image;
  image.integer(1, height).integer(2, width).integer(3, channels).bytes(4, png);
  return event_of(at, Message().bytes(1, tag).bytes(4, image.str()));
}

// Value { tag = 1, tensor = 8 { dtype = 1, tensor_shape = 2 { dim = 2 { size =
// 1 } }, string_val = 8 }, metadata = 9 { plugin_data = 1 { plugin_name = 1 } }
// }
std::string text_event(Moment at, std::string_view tag, std::string_view text) {
  constexpr int kString = 7;
  const Message dim = Message().integer(1, 1);
  const Message shape = Message().bytes(2, dim.str());
  Message tensor;
  tensor.integer(1, kString).bytes(2, shape.str()).bytes(8, text);
  const Message plugin = Message().bytes(1, "text");
  const Message metadata = Message().bytes(1, plugin.str());
  return event_of(
      at,
      Message().bytes(1, tag).bytes(8, tensor.str()).bytes(9, metadata.str()));
}

// Value { tag = 1, histo = 5 { min = 1, max = 2, num = 3, sum = 4,
// sum_squares = 5, bucket_limit = 6, bucket = 7 } }
std::string
histogram_event(Moment at, std::string_view tag, const Histogram& histogram) {
  Message message;
  message.real(1, histogram.min)
      .real(2, histogram.max)
      .real(3, histogram.count)
      .real(4, histogram.sum)
      .real(5, histogram.sum_squares)
      .reals(6, histogram.limits)
      .reals(7, histogram.counts);
  return event_of(at, Message().bytes(1, tag).bytes(5, message.str()));
}

}  // namespace tern::tensorboard
