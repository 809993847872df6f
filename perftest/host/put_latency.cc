// Time of a put and a quiet, one at a time.
#include "perftest/host/transfer_latency.h"

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "put_latency", perftest::Figure::kLatency,
                       "memcpy to a plain shared mapping and a full fence", perftest::latency_defaults(),
                       [](perftest::Bench& bench) { return perftest::measure_latency<true>(bench, "put_latency"); });
}
