// torch_tpu_compile PLUGIN: compiles StableHLO for TPUs that need not be there (aot/service.h).
//
// A process of its own, because libtpu ends its process on some mistakes, needs an environment that its
// user may not have, takes signals and keeps threads for ever. Strings travel on stdin and stdout, each
// after its length as 8 bytes, lowest first. The first answer is the greeting.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>

#include "aot/service.h"

namespace torch_tpu::aot {
namespace {

constexpr uint64_t kLongest = uint64_t{4} << 30;

bool read_fully(char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t got = read(STDIN_FILENO, bytes, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

bool write_fully(int file, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t put = write(file, bytes, count);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes += put;
    count -= static_cast<size_t>(put);
  }
  return true;
}

bool read_string(std::string& text) {
  unsigned char length[8];
  if (!read_fully(reinterpret_cast<char*>(length), sizeof length)) return false;
  uint64_t count = 0;
  for (int i = 7; i >= 0; --i) count = count << 8 | length[i];
  if (count > kLongest) return false;
  text.resize(count);
  return read_fully(text.data(), count);
}

bool write_string(int file, const std::string& text) {
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(uint64_t{text.size()} >> (8 * i) & 0xff);
  return write_fully(file, length, sizeof length) && write_fully(file, text.data(), text.size());
}

bool write_answer(int file, const Answer& answer) {
  return write_string(file, answer.json) && write_string(file, answer.program);
}

std::optional<Request> read_request() {
  Request request;
  if (read_string(request.topology) && read_string(request.options) && read_string(request.stablehlo)) {
    return request;
  }
  return std::nullopt;
}

/// Nobody waits for an answer once the other end of stdin is closed, however long a compile still takes.
void end_with_the_parent() {
  std::thread([] {
    pollfd input{STDIN_FILENO, 0, 0};
    while (poll(&input, 1, -1) < 0 || (input.revents & (POLLHUP | POLLERR)) == 0) {
    }
    _exit(0);
  }).detach();
}

int serve(const char* plugin) {
  // What libtpu prints must not get between the answers.
  const int output = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  std::signal(SIGPIPE, SIG_IGN);
  end_with_the_parent();
  pjrt::prepare_environment_for_libtpu();
  auto api = pjrt::Api::load(plugin);
  if (!api.ok()) {
    write_answer(output, failed_greeting(api.status()));
    return 1;
  }
  Service service(std::move(api).value());
  if (!write_answer(output, service.greeting())) return 1;
  while (const auto request = read_request()) {
    if (!write_answer(output, service.compile(*request))) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace torch_tpu::aot

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s PLUGIN\n", arguments[0]);
    return 2;
  }
  // Without the destructors of the plugin's threads.
  _exit(torch_tpu::aot::serve(arguments[1]));
}
