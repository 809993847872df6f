// The one status type of the library: a code and a text that names what failed, which PE, which values and the remedy.
#pragma once

#include <cstdarg>
#include <string>
#include <utility>

namespace heddle {

/// Outcome codes. 0 to 7 are the NVSHMEM codes; the others are finer causes that the C API reports as kInternal.
enum class Code : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotSupported = 3,
  kSymmetry = 4,
  kGpuNotSelected = 5,
  kCollectiveLaunchFailed = 6,
  kInternal = 7,
  kTimeout = 100,   ///< a deadline passed; the text names who is missing
  kPeerLost = 101,  ///< a PE ended without nvshmem_finalize; the text names it
  kNotReady = 102,  ///< an endpoint was used before a query reported it ready
  kNotInitialized = 103,
};

/// Name of a code for messages and logs, e.g. "out of memory".
const char* code_name(Code code);

/// A code and a text. Made where an error is first decided, passed on unchanged otherwise.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text) : code_(code), text_(std::move(text)) {}

  static Status ok() { return {}; }

  bool is_ok() const { return code_ == Code::kOk; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return code_; }
  const std::string& text() const { return text_; }

  /// The value the C API returns for this status: 0 to 7.
  int nvshmem_code() const { return static_cast<int>(code_) <= 7 ? static_cast<int>(code_) : 7; }

  /// The same status with `where` and ": " put before its text; a success stays as it is.
  Status in(const std::string& where) const { return is_ok() ? *this : Status(code_, where + ": " + text_); }

 private:
  Code code_ = Code::kOk;
  std::string text_;
};

/// printf into a std::string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

/// A failed status with a printf text.
[[gnu::format(printf, 2, 3)]] Status error(Code code, const char* pattern, ...);

/// A failed status whose text ends in the name of errno value `err`.
[[gnu::format(printf, 3, 4)]] Status error_errno(Code code, int err, const char* pattern, ...);

}  // namespace heddle

/// Returns from the enclosing function when `expression` is a failed Status.
#define HEDDLE_RETURN_IF_ERROR(expression)              \
  do {                                                  \
    ::heddle::Status heddle_status_ = (expression);     \
    if (!heddle_status_.is_ok()) return heddle_status_; \
  } while (0)
