#include "tern/vision/interpret/format_predictions.h"

#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/data/formats/json.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/export/model_card.h"
#include "tern/vision/interpret/image_grid.h"

namespace tern {
namespace {

/// A class with its probability or fraction of pixels, or a number.
struct NamedValue {
  std::string name;
  double value;
};
using NamedValues = std::vector<NamedValue>;

int64_t classes_of(const Prediction& prediction) {
  return std::max<int64_t>(prediction.probabilities.size(0), 2);
}

/// Returns the fraction of pixels of each class, [C] kDouble.
torch::Tensor shares_of_pixels(const Prediction& prediction) {
  const torch::Tensor& mask = prediction.mask;
  return mask.dim() == 3
             ? mask.to(torch::kDouble).mean({1, 2})
             : torch::bincount(mask.reshape({-1}), {}, classes_of(prediction)) /
                   static_cast<double>(mask.numel());
}

std::string point_name(const OutputInfo& info, int64_t index) {
  return index < std::ssize(info.names) ? info.names[index]
                                        : fmt::format("point {}", index);
}

/// Returns x1, y1, x2, y2 of a box.
std::vector<std::string> corners_of(
    const Prediction& prediction,
    int64_t index) {
  std::vector<std::string> corners;
  for (int64_t i = 0; i < 4; ++i) {
    corners.push_back(json_number(prediction.boxes[index][i].item<double>()));
  }
  return corners;
}

NamedValues values_of(const Prediction& prediction, const OutputInfo& info) {
  // Undefined if the output belongs to the whole batch instead of a sample.
  if (!prediction.probabilities.defined()) return {};
  if (prediction.points.defined()) {
    NamedValues places;
    for (int64_t i = 0; i < prediction.points.size(0); ++i) {
      const std::string name = point_name(info, i);
      places.push_back({name + " x", prediction.points[i][0].item<double>()});
      places.push_back({name + " y", prediction.points[i][1].item<double>()});
    }
    return places;
  }
  torch::Tensor values;
  if (prediction.kind == TargetKind::mask) {
    values = shares_of_pixels(prediction);
  } else if (prediction.kind == TargetKind::number) {
    values = torch::tensor(prediction.numbers, torch::kDouble);
  } else {
    values = prediction.probabilities.reshape({-1});
    // A single output is the probability of the second of two classes.
    const bool is_binary =
        prediction.kind == TargetKind::category && values.numel() == 1;
    if (is_binary) values = torch::stack({1 - values[0], values[0]});
  }
  values = values.to(torch::kDouble).contiguous();
  NamedValues named;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const bool is_number = prediction.kind == TargetKind::number;
    named.push_back(
        {is_number && i >= std::ssize(info.names) ? fmt::format("number {}", i)
                                                  : class_name(info.names, i),
         values.const_data_ptr<double>()[i]});
  }
  return named;
}

std::string mask_text(NamedValues shares) {
  std::ranges::stable_sort(shares, std::greater(), &NamedValue::value);
  std::vector<std::string> words;
  for (const auto& [name, share] : shares) {
    if (share > 0) words.push_back(fmt::format("{} ({:.3f})", name, share));
  }
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

std::string text_of(const Prediction& prediction, const OutputInfo& info) {
  return prediction.mask.defined() ? mask_text(values_of(prediction, info))
                                   : to_string(prediction);
}

/// Formats one output, without the braces.
std::string json_of(const Prediction& prediction, const OutputInfo& info) {
  std::string text = fmt::format("\"kind\":\"{}\"", kind_name(prediction.kind));
  if (prediction.boxes.defined()) {
    std::vector<std::string> boxes;
    for (size_t i = 0; i < prediction.labels.size(); ++i) {
      boxes.push_back(fmt::format(
          "{{\"label\":{},\"score\":{},\"box\":[{}]}}",
          json_quoted(prediction.labels[i]),
          json_number(prediction.scores[i]),
          fmt::join(corners_of(prediction, static_cast<int64_t>(i)), ",")));
    }
    return text + fmt::format(",\"boxes\":[{}]", fmt::join(boxes, ","));
  }
  if (prediction.points.defined()) {
    std::vector<std::string> points;
    for (int64_t i = 0; i < prediction.points.size(0); ++i) {
      points.push_back(fmt::format(
          "{}:[{},{}]",
          json_quoted(point_name(info, i)),
          json_number(prediction.points[i][0].item<double>()),
          json_number(prediction.points[i][1].item<double>())));
    }
    return text + fmt::format(",\"points\":{{{}}}", fmt::join(points, ","));
  }
  const NamedValues values = values_of(prediction, info);
  if (values.empty()) return text;
  if (prediction.kind == TargetKind::mask) {
    const torch::Tensor colors = mask_colors(classes_of(prediction));
    std::vector<std::string> classes;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto* rgb = colors.const_data_ptr<uint8_t>() + 3 * i;
      classes.push_back(fmt::format(
          "{{\"name\":{},\"color\":\"#{:02x}{:02x}{:02x}\",\"share\":{}}}",
          json_quoted(values[i].name),
          rgb[0],
          rgb[1],
          rgb[2],
          json_number(values[i].value)));
    }
    return text + fmt::format(
                      ",\"height\":{},\"width\":{},\"classes\":[{}]",
                      prediction.mask.size(-2),
                      prediction.mask.size(-1),
                      fmt::join(classes, ","));
  }
  if (prediction.kind == TargetKind::category && !prediction.labels.empty()) {
    text += ",\"label\":" + json_quoted(prediction.labels[0]);
  } else if (prediction.kind == TargetKind::multi_category) {
    const auto labels = prediction.labels | std::views::transform(json_quoted);
    text += fmt::format(",\"labels\":[{}]", fmt::join(labels, ","));
  }
  std::vector<std::string> fields;
  for (const auto& [name, value] : values) {
    fields.push_back(json_quoted(name) + ":" + json_number(value));
  }
  return text + fmt::format(
                    ",\"{}\":{{{}}}",
                    prediction.kind == TargetKind::number ? "numbers"
                                                          : "probabilities",
                    fmt::join(fields, ","));
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

bool has_label(TargetKind kind) {
  return kind != TargetKind::number && kind != TargetKind::points;
}

using Row = std::vector<std::string>;

std::string csv_line(const Row& cells) {
  std::vector<std::string> quoted;
  for (const std::string& cell : cells) quoted.push_back(csv_cell(cell));
  return fmt::format("{}\n", fmt::join(quoted, ","));
}

/// Calls `f(prediction, info)` for each output.
template <class F>
void for_each_output(
    const Prediction& prediction,
    const std::vector<OutputInfo>& outputs,
    const F& f) {
  for (size_t i = 0; i < prediction.outputs.size(); ++i) {
    f(prediction.outputs[i],
      i < outputs.size() ? outputs[i] : OutputInfo{.kind = TargetKind::number});
  }
}

/// Writes one row per box, and a row without a box for a file without boxes.
std::string csv_of_boxes(const std::vector<FilePrediction>& files) {
  std::string text =
      csv_line({"path", "label", "score", "x1", "y1", "x2", "y2", "error"});
  for (const FilePrediction& file : files) {
    const Prediction& prediction = file.prediction;
    for (size_t i = 0; i < prediction.scores.size(); ++i) {
      Row row = {
          file.path,
          prediction.labels[i],
          json_number(prediction.scores[i])};
      const Row corners = corners_of(prediction, static_cast<int64_t>(i));
      row.insert(row.end(), corners.begin(), corners.end());
      row.emplace_back();
      text += csv_line(row);
    }
    if (prediction.scores.empty()) {
      text += csv_line({file.path, "", "", "", "", "", "", file.error});
    }
  }
  return text;
}

std::string csv_of(
    const std::vector<FilePrediction>& files,
    const std::vector<OutputInfo>& outputs) {
  if (!outputs.empty() && outputs[0].kind == TargetKind::boxes) {
    return csv_of_boxes(files);
  }
  Row header = {"path"};
  const auto known = std::ranges::find(files, "", &FilePrediction::error);
  if (known != files.end()) {
    for_each_output(
        known->prediction,
        outputs,
        [&](const Prediction& prediction, const OutputInfo& info) {
          if (has_label(prediction.kind)) header.emplace_back("label");
          for (auto& value : values_of(prediction, info)) {
            header.push_back(value.name);
          }
        });
  }
  const size_t width = header.size();
  header.emplace_back("error");
  std::string text = csv_line(header);
  for (const FilePrediction& file : files) {
    Row row = {file.path};
    const auto add = [&](const Prediction& prediction, const OutputInfo& info) {
      const NamedValues values = values_of(prediction, info);
      if (prediction.mask.defined()) {
        row.push_back(std::ranges::max(values, {}, &NamedValue::value).name);
      } else if (has_label(prediction.kind)) {
        row.push_back(prediction.label);
      }
      for (const NamedValue& value : values) {
        row.push_back(json_number(value.value));
      }
    };
    if (file.error.empty()) for_each_output(file.prediction, outputs, add);
    row.resize(width);
    row.push_back(file.error);
    text += csv_line(row);
  }
  return text;
}

std::string json_of(
    const FilePrediction& file,
    const std::vector<OutputInfo>& outputs) {
  const std::string path = "{\"path\":" + json_quoted(file.path) + ",";
  if (!file.error.empty()) {
    return path + "\"error\":" + json_quoted(file.error) + "}\n";
  }
  std::vector<std::string> texts;
  for_each_output(
      file.prediction,
      outputs,
      [&](const Prediction& prediction, const OutputInfo& info) {
        texts.push_back(json_of(prediction, info));
      });
  if (texts.size() == 1) return path + texts[0] + "}\n";
  return path +
         fmt::format("\"outputs\":[{{{}}}]}}\n", fmt::join(texts, "},{"));
}

std::string text_of(
    const FilePrediction& file,
    const std::vector<OutputInfo>& outputs) {
  std::vector<std::string> texts;
  for_each_output(
      file.prediction,
      outputs,
      [&](const Prediction& prediction, const OutputInfo& info) {
        texts.push_back(text_of(prediction, info));
      });
  return fmt::format(
      "{}: {}\n",
      file.path,
      file.error.empty() ? fmt::format("{}", fmt::join(texts, "; "))
                         : "error: " + file.error);
}

}  // namespace

std::string format_predictions(
    const std::vector<FilePrediction>& files,
    const std::vector<OutputInfo>& outputs,
    PredictionFormat format) {
  if (format == PredictionFormat::csv) return csv_of(files, outputs);
  std::string text;
  for (const FilePrediction& file : files) {
    text += format == PredictionFormat::json ? json_of(file, outputs)
                                             : text_of(file, outputs);
  }
  return text;
}

}  // namespace tern
