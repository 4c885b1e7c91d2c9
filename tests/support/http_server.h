#pragma once

#include <arpa/inet.h>
#include <atomic>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tern {

/// A local web server for one test. It sends each client the bytes that
/// `respond` returns and closes the connection.
///
///   HttpServer server([](const HttpServer::Request& request) {
///     return HttpServer::ok("content");
///   });
///   download(server.url("/a.tgz"), temp / "a.tgz");
class HttpServer {
 public:
  struct Request {
    /// Number of the request, starting at 0.
    int number = 0;
    std::string path;
    /// Start of the requested range; 0 without a range.
    size_t offset = 0;
  };
  using Responder = std::function<std::string(const Request&)>;

  explicit HttpServer(Responder respond) : respond_(std::move(respond)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, any, size) != 0 || ::listen(socket_, 16) != 0 ||
        ::getsockname(socket_, any, &size) != 0) {
      throw std::runtime_error("cannot listen on the loopback");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    is_over_ = true;
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }

  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  int port() const { return port_; }

  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  static std::string response(
      const std::string& status,
      const std::string& headers,
      const std::string& body) {
    return "HTTP/1.1 " + status + "\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n\r\n" + body;
  }
  static std::string ok(const std::string& body) {
    return response("200 OK", "", body);
  }
  /// The response of a server that supports ranges.
  static std::string range(const std::string& body, size_t offset) {
    if (offset == 0) return ok(body);
    if (offset >= body.size()) {
      return response("416 Range Not Satisfiable", "", "");
    }
    const std::string from = std::to_string(offset);
    const std::string size = std::to_string(body.size());
    return response(
        "206 Partial Content",
        "Content-Range: bytes " + from + "-" + std::to_string(body.size() - 1) +
            "/" + size + "\r\n",
        body.substr(offset));
  }

 private:
  void serve() {
    while (!is_over_) {
      const int connection = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      answer(connection);
      ::close(connection);
    }
  }

  void answer(int connection) {
    std::string text;
    char buffer[4096];
    while (text.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::recv(connection, buffer, sizeof buffer, 0);
      if (n <= 0) return;
      text.append(buffer, static_cast<size_t>(n));
    }
    Request request;
    const size_t path = text.find(' ') + 1;
    request.path = text.substr(path, text.find(' ', path) - path);
    const size_t range = text.find("Range: bytes=");
    if (range != std::string::npos) {
      request.offset = std::stoul(text.substr(range + 13));
    }
    {
      const std::lock_guard lock(mutex_);
      request.number = static_cast<int>(requests_.size());
      requests_.push_back(request);
    }
    const std::string reply = respond_(request);
    for (size_t sent = 0; sent < reply.size();) {
      const ssize_t n = ::send(
          connection,
          reply.data() + sent,
          reply.size() - sent,
          MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }

  Responder respond_;
  int socket_ = -1, port_ = 0;
  std::atomic<bool> is_over_{false};
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::thread thread_;
};

}  // namespace tern
