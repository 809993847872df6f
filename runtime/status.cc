#include "runtime/status.h"

#include <cstdio>
#include <cstring>

namespace heddle {
namespace {

std::string vformat(const char* pattern, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int length = std::vsnprintf(nullptr, 0, pattern, copy);
  va_end(copy);
  if (length <= 0) return {};
  std::string text(static_cast<size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, args);
  return text;
}

}  // namespace

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidValue:
      return "invalid value";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kNotSupported:
      return "not supported";
    case Code::kSymmetry:
      return "not symmetric";
    case Code::kGpuNotSelected:
      return "no GPU selected";
    case Code::kCollectiveLaunchFailed:
      return "collective launch failed";
    case Code::kInternal:
      return "internal error";
    case Code::kTimeout:
      return "timed out";
    case Code::kPeerLost:
      return "PE lost";
    case Code::kNotReady:
      return "not ready";
    case Code::kNotInitialized:
      return "not initialized";
  }
  return "unknown code";
}

std::string format(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  std::string text = vformat(pattern, args);
  va_end(args);
  return text;
}

Status error(Code code, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  std::string text = vformat(pattern, args);
  va_end(args);
  return {code, std::move(text)};
}

Status error_errno(Code code, int err, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  std::string text = vformat(pattern, args);
  va_end(args);
  return {code, text + ": " + std::strerror(err)};
}

}  // namespace heddle
