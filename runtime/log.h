// The log: one line per event on stderr or in NVSHMEM_DEBUG_FILE, with the PE, and the last error of each thread.
#pragma once

#include <string>

#include "runtime/settings.h"
#include "runtime/status.h"

namespace heddle {

enum class LogLevel { kError, kWarn, kInfo, kTrace };

/// Sets level and file from `settings` and the PE that lines carry (-1: not known yet).
/// An unwritable file is kInvalidValue that names it; the log then stays on stderr.
Status configure_log(const Settings& settings, int pe);

/// True when lines of `level` are written.
bool log_enabled(LogLevel level);

/// Writes one line: "heddle: PE 2: warning: text".
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* pattern, ...);

/// Logs a failed status once, where it is first decided, keeps it as this thread's last error, and returns it.
/// `where` is the call that failed, e.g. "nvshmem_malloc".
Status report(const std::string& where, Status status);

/// report() without the line, for a failure that repeats one which was logged already.
Status keep_error(const std::string& where, Status status);

/// The last error that report() kept on this thread, else the last of any thread; an ok status when there was none.
Status last_error();
void clear_last_error();

}  // namespace heddle
