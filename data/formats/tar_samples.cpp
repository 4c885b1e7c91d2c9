#include "tern/data/formats/tar_samples.h"

#include <algorithm>
#include <unordered_set>

#include "tern/data/formats/error.h"
#include "tern/data/formats/printable.h"

namespace tern {

namespace {

// Where key and field part; npos for a file of no sample.
size_t first_dot(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == name.npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  const bool is_field = dot != name.npos && dot > base && dot + 1 < name.size();
  return is_field ? dot : name.npos;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string_view sample_key(std::string_view name) {
  return name.substr(0, first_dot(name));
}

std::string_view sample_field(std::string_view name) {
  const size_t dot = first_dot(name);
  return dot == name.npos ? std::string_view() : name.substr(dot + 1);
}

bool is_same_field(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return lower(x) == lower(y);
  });
}

TarSamples::TarSamples(std::vector<TarMember> members, const std::string& path)
    : members_(std::move(members)) {
  std::erase_if(members_, [](const TarMember& member) {
    return sample_field(member.name).empty();
  });
  std::unordered_set<std::string_view> keys;
  std::string_view last;
  for (size_t i = 0; i < members_.size(); ++i) {
    const std::string_view name = members_[i].name;
    const std::string_view key = sample_key(name);
    if (begins_.empty() || key != last) {
      if (!keys.insert(key).second) {
        throw DataError(
            path,
            "the files of its sample " + printable(key) +
                " do not stand together; " + printable(name) +
                " comes after others. Write it with its files sorted by name, "
                "as `tar --sort=name` does");
      }
      begins_.push_back(static_cast<uint32_t>(i));
      last = key;
      continue;
    }
    for (size_t other = begins_.back(); other < i; ++other) {
      if (is_same_field(
              sample_field(members_[other].name),
              sample_field(name))) {
        throw DataError(
            path,
            "its sample " + printable(key) + " has " + printable(name) +
                " twice. Write it with one file of each name");
      }
    }
  }
}

std::span<const TarMember> TarSamples::operator[](int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const size_t begin = begins_.at(i);
  const size_t end = i + 1 < begins_.size() ? begins_[i + 1] : members_.size();
  return std::span(members_).subspan(begin, end - begin);
}

}  // namespace tern
