/* What PMIx alone costs: the time of PMIx_Init and PMIx_Finalize, and the resident memory after PMIx_Init. Rank 0
 * prints one line. No NVSHMEM here: this is what init time and memory are compared with. */
#include <pmix.h>
#include <stdio.h>
#include <time.h>

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static long resident_kib(void) {
  long kib = 0;
  char line[256];
  FILE* file = fopen("/proc/self/status", "r");
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL && sscanf(line, "VmRSS: %ld", &kib) != 1) {
  }
  fclose(file);
  return kib;
}

int main(void) {
  pmix_proc_t me;
  const double start = now_us();
  pmix_status_t status = PMIx_Init(&me, NULL, 0);
  if (status != PMIX_SUCCESS) {
    fprintf(stderr, "pmix_init_time: PMIx_Init: %s; start it with mpirun or heddlerun\n", PMIx_Error_string(status));
    return 1;
  }
  const double init_us = now_us() - start;
  const long kib = resident_kib();
  const double end = now_us();
  status = PMIx_Finalize(NULL, 0);
  if (status != PMIX_SUCCESS) {
    fprintf(stderr, "pmix_init_time: PMIx_Finalize: %s\n", PMIx_Error_string(status));
    return 1;
  }
  if (me.rank == 0) printf("init_us %.1f finalize_us %.1f resident_kib %ld\n", init_us, now_us() - end, kib);
  return 0;
}
