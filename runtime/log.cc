#include "runtime/log.h"

#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

namespace heddle {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

struct Log {
  std::mutex mutex;  // guards file and last_error_anywhere
  std::unique_ptr<std::FILE, FileCloser> file;
  Status last_error_anywhere;
  std::atomic<int> level{static_cast<int>(LogLevel::kWarn)};
  std::atomic<int> pe{-1};
};

// Never destroyed: the service thread may still log while the process exits.
Log& the_log() {
  static Log* log = new Log;
  return *log;
}

Status& thread_error() {
  thread_local Status status;
  return status;
}

std::string expand(const std::string& pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size() && (pattern[i + 1] == 'h' || pattern[i + 1] == 'p')) {
      char host[256] = "host";
      if (pattern[++i] == 'h') gethostname(host, sizeof host - 1);
      name += pattern[i] == 'h' ? std::string(host) : std::to_string(getpid());
    } else {
      name += pattern[i];
    }
  }
  return name;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarn:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kTrace:
      return "trace";
  }
  return "";
}

void write_line(LogLevel level, const std::string& text) {
  Log& log = the_log();
  const int pe = log.pe.load(std::memory_order_relaxed);  // relaxed: a label, orders nothing
  const std::string who = pe < 0 ? "" : format("PE %d: ", pe);
  const std::string line = format("heddle: %s%s: %s\n", who.c_str(), level_name(level), text.c_str());
  std::lock_guard<std::mutex> lock(log.mutex);
  std::FILE* out = log.file ? log.file.get() : stderr;
  std::fwrite(line.data(), 1, line.size(), out);
  std::fflush(out);
}

}  // namespace

Status configure_log(const Settings& settings, int pe) {
  Log& log = the_log();
  LogLevel level = LogLevel::kWarn;
  if (strcasecmp(settings.debug.c_str(), "INFO") == 0) level = LogLevel::kInfo;
  if (strcasecmp(settings.debug.c_str(), "TRACE") == 0) level = LogLevel::kTrace;
  log.level.store(static_cast<int>(level), std::memory_order_relaxed);  // relaxed: a filter, orders nothing
  log.pe.store(pe, std::memory_order_relaxed);
  if (settings.debug_file.empty()) {
    const std::lock_guard<std::mutex> lock(log.mutex);
    log.file.reset();
    return Status::ok();
  }
  const std::string name = expand(settings.debug_file);
  std::lock_guard<std::mutex> lock(log.mutex);
  log.file.reset(std::fopen(name.c_str(), "ae"));
  if (!log.file) {
    return error_errno(Code::kInvalidValue, errno, "NVSHMEM_DEBUG_FILE=\"%s\": cannot write \"%s\"",
                       settings.debug_file.c_str(), name.c_str());
  }
  return Status::ok();
}

bool log_enabled(LogLevel level) {
  return static_cast<int>(level) <= the_log().level.load(std::memory_order_relaxed);  // relaxed: a filter
}

void log(LogLevel level, const char* pattern, ...) {
  if (!log_enabled(level)) return;
  va_list args;
  va_start(args, pattern);
  char text[2048];
  std::vsnprintf(text, sizeof text, pattern, args);
  va_end(args);
  write_line(level, text);
}

Status report(const std::string& where, Status status) {
  if (!status.is_ok()) write_line(LogLevel::kError, status.in(where).text());
  return keep_error(where, std::move(status));
}

Status keep_error(const std::string& where, Status status) {
  if (status.is_ok()) return status;
  status = status.in(where);
  thread_error() = status;
  std::lock_guard<std::mutex> lock(the_log().mutex);
  the_log().last_error_anywhere = status;
  return status;
}

Status last_error() {
  if (!thread_error().is_ok()) return thread_error();
  std::lock_guard<std::mutex> lock(the_log().mutex);
  return the_log().last_error_anywhere;
}

void clear_last_error() {
  thread_error() = Status();
  std::lock_guard<std::mutex> lock(the_log().mutex);
  the_log().last_error_anywhere = Status();
}

}  // namespace heddle
