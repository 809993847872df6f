// Time of a blocking get.
#include "perftest/host/transfer_latency.h"

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "get_latency", perftest::Figure::kLatency, "memcpy from a plain shared mapping",
                       perftest::latency_defaults(),
                       [](perftest::Bench& bench) { return perftest::measure_latency<false>(bench, "get_latency"); });
}
