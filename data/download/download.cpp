#include "tern/data/download/download.h"

#include <cerrno>
#include <chrono>
#include <curl/curl.h>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <new>
#include <span>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/support/error_text.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

using Kind = DownloadError::Kind;

// Timeout for connecting and for receiving data.
constexpr long kTimeoutSeconds = 20;

std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

// Checks a URL. Returns true if its server is this machine.
// \throws DownloadError unless it is https, or http to this machine.
bool check_url(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(
      curl_url(),
      curl_url_cleanup);
  if (!parsed) throw std::bad_alloc();
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    throw DownloadError(
        Kind::refused,
        url,
        "is not a URL; expected https://host/path");
  }
  const std::string scheme = url_part(parsed.get(), CURLUPART_SCHEME);
  const std::string host = url_part(parsed.get(), CURLUPART_HOST);
  const bool is_local =
      host == "127.0.0.1" || host == "[::1]" || host == "localhost";
  if (scheme != "https" && scheme != "file" &&
      !(scheme == "http" && is_local)) {
    throw DownloadError(
        Kind::refused,
        url,
        "is not downloaded, since " + scheme + " is not encrypted; use https");
  }
  return is_local;
}

// The growing `.part` file. Only the holder of its lock writes to it.
class PartFile {
 public:
  explicit PartFile(fs::path path) : path_(std::move(path)) {
    while (true) {
      file_ = open_file(path_, O_RDWR | O_CREAT | O_NOFOLLOW);
      lock_file(file_);  // without lock support, each process continues
      // The previous holder may have renamed or removed it.
      const struct stat mine = file_status(file_, path_);
      struct stat named {};
      if (::stat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
          mine.st_dev == named.st_dev) {
        return;
      }
    }
  }

  int64_t size() const { return file_size(file_, path_); }

  void append(std::span<const uint8_t> bytes) {
    ::lseek(file_.fd(), 0, SEEK_END);
    write_all(file_, bytes, path_);
  }

  void clear() {
    if (::ftruncate(file_.fd(), 0) != 0) throw IoError(path_, "empty", errno);
  }

  void remove() { ::unlink(path_.c_str()); }

  std::string sha256() const { return sha256_file(path_); }

  void publish(const fs::path& target) {
    sync_file(file_, path_);
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      throw IoError(target, "rename the finished file to this name", errno);
    }
    sync_folder(fs::absolute(target).parent_path());
  }

 private:
  fs::path path_;
  FileHandle file_;
};

// One request, starting at the end of the part file.
class Transfer {
 public:
  Transfer(
      const std::string& url,
      PartFile& part,
      const DownloadOptions& options)
      : url_(url),
        options_(options),
        part_(part),
        offset_(part.size()),
        curl_(curl_easy_init(), curl_easy_cleanup) {
    if (!curl_) throw std::bad_alloc();
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_ERRORBUFFER, reason_);
    set(CURLOPT_USERAGENT, "tern");
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_CONNECTTIMEOUT, kTimeoutSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, kTimeoutSeconds);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, 10L);
    set(CURLOPT_REDIR_PROTOCOLS_STR, "https");
    if (check_url(url)) set(CURLOPT_NOPROXY, "*");
    if (offset_ > 0) {
      set(CURLOPT_RANGE, (std::to_string(offset_) + "-").c_str());
    }
  }

  // Returns normally if the server completed its response.
  void run() {
    const CURLcode result = curl_easy_perform(curl_.get());
    if (error_) std::rethrow_exception(error_);
    if (result == CURLE_OK) return;
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    fail(result, status);
  }

  bool resumed() const { return offset_ > 0; }
  bool may_pass() const { return may_pass_; }

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    if (curl_easy_setopt(curl_.get(), option, value) != CURLE_OK) {
      raise(Kind::refused, "needs a libcurl with HTTPS support");
    }
  }

  // Exceptions must not pass through C code, so they are stored here and
  // rethrown by `run`.
  template <class Action>
  bool guarded(Action action) {
    try {
      action();
      return true;
    } catch (...) {
      error_ = std::current_exception();
      return false;
    }
  }

  static size_t on_bytes(char* data, size_t, size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const bool is_ok = transfer.guarded([&] {
      transfer.take({reinterpret_cast<const uint8_t*>(data), size});
    });
    return is_ok ? size : 0;
  }

  static int on_progress(
      void* self,
      curl_off_t total,
      curl_off_t done,
      curl_off_t,
      curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    const DownloadOptions& options = transfer.options_;
    if (!options.progress) return 0;
    const int64_t all = total > 0 ? total + transfer.offset_ : options.bytes;
    const bool is_ok = transfer.guarded(
        [&] { options.progress(done + transfer.offset_, all); });
    return is_ok ? 0 : 1;
  }

  void take(std::span<const uint8_t> bytes) {
    if (!has_begun_) {
      has_begun_ = true;
      long status = 0;
      curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
      if (offset_ > 0 && status == 200) {  // the server sent the whole file
        part_.clear();
        offset_ = 0;
      }
      size_ = offset_;
    }
    size_ += static_cast<int64_t>(bytes.size());
    if (options_.bytes > 0 && size_ > options_.bytes) {
      raise(
          Kind::wrong_content,
          "sent more than the expected " + std::to_string(options_.bytes) +
              " bytes; it is not the requested file");
    }
    part_.append(bytes);
  }

  [[noreturn]] void raise(Kind kind, const std::string& what) const {
    throw DownloadError(kind, url_, what);
  }

  [[noreturn]] void fail(CURLcode result, long status) {
    const std::string reason =
        reason_[0] != '\0' ? reason_ : curl_easy_strerror(result);
    switch (result) {
      case CURLE_HTTP_RETURNED_ERROR:
        may_pass_ = status >= 500 || status == 408 || status == 429;
        // 416: the part file is as long as the file, or longer.
        if (status == 416 && offset_ > 0) {
          part_.clear();
          may_pass_ = true;
        }
        raise(
            Kind::refused,
            "the server returned the status " + std::to_string(status) +
                (status == 404 ? "; there is no such file. Check the URL"
                               : ". Try again later"));
      case CURLE_UNSUPPORTED_PROTOCOL:
      case CURLE_TOO_MANY_REDIRECTS:
        raise(
            Kind::refused,
            "redirects to a URL that is not https (" + reason +
                "); expected https");
      case CURLE_FILE_COULDNT_READ_FILE:
        raise(Kind::refused, "there is no such file. Check the URL");
      case CURLE_RANGE_ERROR:
      case CURLE_BAD_DOWNLOAD_RESUME:
        part_.clear();
        may_pass_ = true;
        raise(Kind::refused, "cannot be resumed (" + reason + ")");
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
        raise(
            Kind::unreachable,
            "the server's certificate is not trusted (" + reason +
                "). Check the clock and the system's certificates "
                "(ca-certificates)");
      default:
        may_pass_ = result != CURLE_COULDNT_RESOLVE_HOST &&
                    result != CURLE_COULDNT_RESOLVE_PROXY &&
                    result != CURLE_COULDNT_CONNECT;
        raise(
            Kind::unreachable,
            "cannot be reached (" + reason +
                "). Check the network, and https_proxy if there is a proxy");
    }
  }

  const std::string& url_;
  const DownloadOptions& options_;
  PartFile& part_;
  int64_t offset_, size_ = 0;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  char reason_[CURL_ERROR_SIZE] = {};
  std::exception_ptr error_;
  bool has_begun_ = false, may_pass_ = false;
};

bool is_wanted(const fs::path& file, const DownloadOptions& options) {
  std::error_code error;
  return !options.sha256.empty() && fs::is_regular_file(file, error) &&
         sha256_file(file).starts_with(options.sha256);
}

// Returns why the content is not the requested file; empty if it is.
std::string content_fault(
    const PartFile& part,
    const DownloadOptions& options) {
  if (options.bytes > 0 && part.size() != options.bytes) {
    return "gave " + std::to_string(part.size()) + " bytes; expected " +
           std::to_string(options.bytes);
  }
  if (options.sha256.empty()) return "";
  const std::string actual = part.sha256();
  if (actual.starts_with(options.sha256)) return "";
  const bool is_whole = is_sha256(options.sha256);
  return "sent a file with SHA-256 " + actual + "; expected " +
         (is_whole ? "" : "a SHA-256 that begins with ") + options.sha256;
}

// Downloads until the part file is complete and correct.
void fill(
    PartFile& part,
    const std::string& url,
    const DownloadOptions& options) {
  double pause = options.retry_seconds;
  for (int attempt = 0;; ++attempt) {
    // Without a checksum, a mixture of two versions would not be detected.
    if (options.sha256.empty()) part.clear();
    Transfer transfer(url, part, options);
    bool may_pass = false;
    try {
      transfer.run();
      const std::string fault = content_fault(part, options);
      if (fault.empty()) return;
      throw DownloadError(
          Kind::wrong_content,
          url,
          fault + ". The file is damaged or was replaced, and is discarded");
    } catch (const DownloadError& error) {
      may_pass = transfer.may_pass();
      if (error.kind() == Kind::wrong_content) {
        // Data from an earlier call may belong to a different version of the
        // file.
        part.clear();
        may_pass = transfer.resumed();
      }
      if (attempt >= options.retries || !may_pass) {
        if (part.size() == 0) part.remove();
        throw;
      }
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    pause *= 2;
  }
}

}  // namespace

DownloadError DownloadError::or_else(const std::string& advice) const {
  std::string reason = reason_of(*this);
  const std::string prefix = path() + ": ";
  if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
  return {kind_, path(), reason + "; or " + advice};
}

void download(
    const std::string& url,
    const fs::path& file,
    const DownloadOptions& options) {
  check_url(url);  // before anything is written
  if (is_wanted(file, options)) return;
  [[maybe_unused]] static const CURLcode started =
      curl_global_init(CURL_GLOBAL_DEFAULT);
  make_folders(fs::absolute(file).parent_path());
  PartFile part(file.string() + ".part");
  if (is_wanted(file, options)) {  // while waiting for the lock
    part.remove();
    return;
  }
  const bool is_complete = part.size() > 0 && !options.sha256.empty() &&
                           content_fault(part, options).empty();
  if (!is_complete) fill(part, url, options);
  part.publish(file);
}

}  // namespace tern
